//! The pages of a column in a row group, with their bounds and places. Their headers and indexes
//! are the crate's.

use std::io::Write;

use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Compression, Encoding, PageType, Type as Physical, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::{LEVEL, SOUND};

/// The pages of a column in a row group.
pub struct Chunk {
    bytes: TrackedWrite<Vec<u8>>,
    columns: ColumnIndexBuilder,
    offsets: OffsetIndexBuilder,
    compressor: zstd::bulk::Compressor<'static>,
    /// How the data pages are encoded.
    encoding: Encoding,
    /// Where the dictionary begins.
    dictionary: Option<i64>,
    /// Where data begins, bytes before compression, and the number of data pages.
    data: Option<u64>,
    plain: usize,
    pages: i32,
}

impl Chunk {
    pub fn new(physical: Physical, encoding: Encoding) -> Self {
        Chunk {
            bytes: TrackedWrite::new(Vec::new()),
            columns: ColumnIndexBuilder::new(physical),
            offsets: OffsetIndexBuilder::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL).expect(SOUND),
            encoding,
            dictionary: None,
            data: None,
            plain: 0,
            pages: 0,
        }
    }

    /// Adds the page of a dictionary of so many entries, before all others.
    pub fn dictionary(&mut self, body: &[u8], entries: usize) -> Result<()> {
        let (num_values, encoding) = (entries as u32, Encoding::PLAIN);
        let written = self.add(body, |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false })?;
        self.dictionary = Some(written.offset as i64);
        Ok(())
    }

    /// Adds a page of so many rows with this body; `bounds` are those of its values.
    pub fn data(&mut self, body: &[u8], rows: usize, nulls: usize, bounds: Option<(Vec<u8>, Vec<u8>)>) -> Result<()> {
        let (num_values, encoding) = (rows as u32, self.encoding);
        let written = self.add(body, |buf| Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        self.data.get_or_insert(written.offset);
        self.pages += 1;
        self.offsets.append_offset_and_size(written.offset as i64, written.compressed_size as i32);
        self.offsets.append_row_count(rows as i64);
        let (least, most) = bounds.unwrap_or_default();
        self.columns.append(nulls == rows, least, most, nulls as i64);
        Ok(())
    }

    fn add(&mut self, body: &[u8], page: impl FnOnce(Bytes) -> Page) -> Result<PageWriteSpec> {
        let packed = self.compressor.compress(body)?;
        let page = CompressedPage::new(page(packed.into()), body.len());
        let written = SerializedPageWriter::new(&mut self.bytes).write_page(page)?;
        self.plain += written.uncompressed_size;
        Ok(written)
    }

    /// Ends the chunk: its bytes, and what is known of them.
    pub fn close(
        mut self,
        descr: &ColumnDescPtr,
        rows: usize,
        statistics: Statistics,
        order: BoundaryOrder,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        self.bytes.flush()?;
        let bytes = self.bytes.into_inner()?;
        self.columns.set_boundary_order(order);
        let page = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let (mut stats, mut encodings) = (Vec::new(), vec![Encoding::RLE, self.encoding]);
        if self.dictionary.is_some() {
            stats.push(page(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
            encodings.insert(0, Encoding::PLAIN);
        }
        stats.push(page(PageType::DATA_PAGE, self.encoding, self.pages));
        let metadata = ColumnChunkMetaData::builder(descr.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(stats)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.plain as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(self.dictionary)
            .set_data_page_offset(self.data.unwrap_or_default() as i64)
            .set_statistics(statistics)
            .build()?;
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: Some(self.columns.build()?),
            offset_index: Some(self.offsets.build()),
        };
        Ok((bytes.into(), closed))
    }
}
