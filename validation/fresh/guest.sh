#!/bin/sh
# Makes the recordings of `record.sh` under another kernel, in an emulated machine: `guest.sh KERNEL.deb DIR
# [ROUNDS]`, as root, on Debian 12, some 6 s a recording; nothing beside it. KERNEL.deb is a package of a kernel,
# as `apt-get download linux-image-...-amd64` brings it. It wants QEMU, cpio, xz, kmod and what `record.sh`
# wants, with its programs from Debian's packages: these are the guest's only files, and are in its memory.
# Idle CPUs poll, so that all go on at one speed. CPUS (2), WORKLOADS (of zip, web, pipe, pool, commands) and
# VARIANTS say how many and what. Now and then an emulated CPU stops for good, and the guest with it, which
# is ended after LIMIT s (1800).
set -eu
for program in qemu-system-x86_64 cpio xz insmod perf ip dpkg-deb; do
    command -v "$program" > /dev/null || { echo "guest.sh: $program is not installed" >&2; exit 2; }
done
package=$(realpath "$1")
record=$(dirname "$(realpath "$0")")/record.sh
rounds=${3:-2}
cpus=${CPUS:-2}
export WORKLOADS="${WORKLOADS:-zip pipe pool commands}" VARIANTS="${VARIANTS:-default nice19 idle cpu1 fifo}"
parts='bash dash coreutils gzip tar util-linux mount procps mawk grep sed findutils kmod iproute2 libc-bin
    linux-perf python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3-minimal'

sh "$record" "$2" 0
cd "$2"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dpkg-deb -x "$package" "$scratch/kernel"
kernel=$(ls "$scratch"/kernel/boot/vmlinuz-*)
release=${kernel##*/vmlinuz-}
modules="$scratch/kernel/lib/modules/$release"
[ -d "$modules" ] || modules="$scratch/kernel/usr/lib/modules/$release"

root=$scratch/root
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/proc" "$root/sys" "$root/dev" \
    "$root/tmp" "$root/run" "$root/modules" "$root/work" "$root/etc"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
{ for part in $parts; do dpkg -L "$part" 2> /dev/null || true; done; echo /usr/bin/awk; } |
    grep -v -E '^/usr/share/(doc|man|locale|info|bash-completion|lintian)' |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done > "$scratch/files"
# What their programs are linked with.
grep -E '/s?bin/|[.]so' "$scratch/files" | xargs ldd 2> /dev/null |
    grep -o '/[^ ]*[.]so[^ ]*' | sort -u >> "$scratch/files"
tar -C / -chf - -T "$scratch/files" 2> /dev/null | tar -C "$root" -xf - --keep-directory-symlink
# Modules in the order in which they want one another, unpacked.
for name in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
    file=$(find "$modules" -name "$name.ko*")
    [ -n "$file" ] || continue
    cp "$file" "$root/modules/"
    case $file in *.xz) unxz "$root/modules/${file##*/}" ;; esac
    echo "/modules/$name.ko" >> "$root/modules/order"
done
cp probe text within.sh machine.sh ./*.py "$root/work/"
cp "$record" "$root/record.sh"
cat > "$root/init" <<I
#!/bin/sh
export PATH=/usr/bin:/usr/sbin HOME=/ PREPARED=yes WORKLOADS='$WORKLOADS' VARIANTS='$VARIANTS'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing
mount -t cgroup2 groups /sys/fs/cgroup
while read -r module; do insmod \$module; done < /modules/order
ip link set lo up
cd /work
setsid sh /record.sh /work $rounds
tar -cf /dev/vda pairs.tsv *.data*
sync
echo o > /proc/sysrq-trigger
sleep 60
I
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) > "$scratch/initrd"
truncate -s 4G "$scratch/disk"
timeout "${LIMIT:-1800}" qemu-system-x86_64 -machine pc,hpet=off -accel tcg,thread=multi -cpu max,-cx16 \
    -smp "$cpus,sockets=1" -m 3G -nographic -no-reboot -nic none -kernel "$kernel" -initrd "$scratch/initrd" \
    -drive "file=$scratch/disk,format=raw,if=virtio,cache=unsafe" \
    -append "console=ttyS0 quiet panic=-1 idle=poll tsc=reliable mitigations=off nowatchdog" \
    < /dev/null | tee guest.log
tar -xf "$scratch/disk"
if ! ls ./*.data > /dev/null 2>&1; then
    echo "guest.sh: the guest ended without recordings; $PWD/guest.log has what it said" >&2
    exit 1
fi
