//! Which units share CPU time as one, found from what they got.
//!
//! Kernels make such a group of each session (autogroup) or container. A session is begun by one
//! process (`setsid`) and goes on to those that it forks, so that groups lie together in the tree of
//! processes. The partition that is found has the lowest sum of [`Shares::misplaced`], and of a cost
//! for each group and each session that had to be begun (the changes of group along the tree: Fitch,
//! Systematic Zoology 20, 1971, for any number of children Hartigan, Biometrics 29, 1973).

use std::collections::{BTreeSet, HashMap};

use crate::sharing::{Scratch, Shares};

/// Cost of a group, and of a session, as a share of the CPU time. A group of a hundredth of the time,
/// the smallest that is looked at, is worth its two costs where its tasks got a fifth more or less
/// than else.
const COST: f64 = 0.002;

/// A node of the tree of processes, listed before its parent.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its place in the list.
    pub parent: Option<usize>,
    /// The unit that it is itself.
    pub unit: Option<usize>,
}

/// The groups of the first units, as many as are nodes; the others are in none.
///
/// Starts from every unit alone, from one group for all, and from the branches of the tree at each
/// depth. Merges groups, moves units and exchanges two as long as that helps. Dissolves each group of
/// the best and joins each two, and begins again where that helps. `most` bounds the work, in what
/// [`Shares::work`] counts; what was found so far is returned then.
pub fn partition(shares: &Shares, tree: &[Node], most: usize) -> Vec<Option<usize>> {
    let units = tree.iter().filter_map(|node| node.unit).max().map_or(0, |unit| unit + 1);
    let left = most / shares.work().max(1);
    let mut search = Search { shares, tree, units, scratch: Scratch::default(), left, known: HashMap::new() };
    let mut starts = vec![(0..units).collect(), vec![0; units]];
    starts.extend(branches(tree, units));
    starts.dedup();
    let settled: Vec<_> = starts.into_iter().map(|start| search.settle(start)).collect();
    let best = settled.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    let best = search.kicked(best);
    let mut groups: Vec<Option<usize>> = best.1.into_iter().map(Some).collect();
    groups.resize(shares.units(), None);
    groups
}

struct Search<'a> {
    shares: &'a Shares,
    tree: &'a [Node],
    units: usize,
    scratch: Scratch,
    left: usize,
    /// Scores by the groups of the units. The search comes to most partitions several times, from other
    /// starts: each counts as work, so that the bound does not depend on what is kept here.
    known: HashMap<Vec<usize>, f64>,
}

impl Search<'_> {
    /// The best partition that is found around one, with its score.
    fn kicked(&mut self, start: (f64, Vec<usize>)) -> (f64, Vec<usize>) {
        let mut best = start;
        loop {
            let count = best.1.iter().max().map_or(0, |g| g + 1);
            let dissolved = (0..count).map(|group| {
                let apart = |(unit, g): (usize, &usize)| if *g == group { count + unit } else { *g };
                best.1.iter().enumerate().map(apart).collect()
            });
            let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
            let joined = pairs.map(|(a, b)| best.1.iter().map(|g| if *g == b { a } else { *g }).collect());
            let kicked: Vec<Vec<usize>> = dissolved.chain(joined).collect();
            let better = kicked.into_iter().map(|start| self.settle(start)).min_by(|a, b| a.0.total_cmp(&b.0));
            match better {
                Some(found) if found.0 < best.0 => best = found,
                _ => return best,
            }
        }
    }

    /// The partition that merges lead to, and then moves and exchanges, each taken as soon as it helps.
    fn settle(&mut self, start: Vec<usize>) -> (f64, Vec<usize>) {
        let units = self.units;
        let mut best = numbered(start);
        let mut score = self.score(&best);
        loop {
            let before = score;
            // Of the merges the best comes first: a poor one is hard to get out of.
            loop {
                let count = best.iter().max().map_or(0, |g| g + 1);
                let merge = |(a, b)| numbered(best.iter().map(|g| if *g == b { a } else { *g }).collect());
                let merged: Vec<_> = (0..count).flat_map(|b| (0..b).map(move |a| (a, b))).map(merge).collect();
                let scored = merged.into_iter().map(|next| (self.score(&next), next));
                match scored.min_by(|a, b| a.0.total_cmp(&b.0)) {
                    Some((found, next)) if found < score => (score, best) = (found, next),
                    _ => break,
                }
            }
            for (unit, group) in (0..units).flat_map(|unit| (0..units).map(move |group| (unit, group))) {
                // One group that is new is as good as another.
                let free = (0..units).find(|g| !best.contains(g));
                if best[unit] != group && (best.contains(&group) || free == Some(group)) {
                    let mut next = best.clone();
                    next[unit] = group;
                    self.take(&mut best, &mut score, next);
                }
            }
            for (a, b) in (0..units).flat_map(|b| (0..b).map(move |a| (a, b))) {
                if best[a] != best[b] {
                    let mut next = best.clone();
                    next.swap(a, b);
                    self.take(&mut best, &mut score, next);
                }
            }
            if score >= before {
                return (score, numbered(best));
            }
        }
    }

    fn take(&mut self, best: &mut Vec<usize>, score: &mut f64, next: Vec<usize>) {
        let found = self.score(&next);
        if found < *score {
            (*best, *score) = (next, found);
        }
    }

    fn score(&mut self, groups: &[usize]) -> f64 {
        if self.left == 0 {
            return f64::INFINITY;
        }
        self.left -= 1;
        let groups = numbered(groups.to_vec());
        if let Some(score) = self.known.get(&groups) {
            return *score;
        }
        let mut of: Vec<Option<usize>> = groups.iter().copied().map(Some).collect();
        of.resize(self.shares.units(), None);
        let count = groups.iter().max().map_or(0, |g| g + 1);
        let cost = COST * (count + changes(self.tree, &groups)) as f64;
        let score = self.shares.misplaced(&of, &mut self.scratch) + cost;
        self.known.insert(groups, score);
        score
    }
}

/// The units below each node of one depth as a group, those above it alone; for every depth from the
/// top.
fn branches(tree: &[Node], units: usize) -> Vec<Vec<usize>> {
    // From the top to the unit.
    let line = |unit: usize| {
        let node = tree.iter().position(|node| node.unit == Some(unit));
        let mut line: Vec<usize> = std::iter::successors(node, |at| tree[*at].parent).collect();
        line.reverse();
        line
    };
    let lines: Vec<Vec<usize>> = (0..units).map(line).collect();
    let deepest = lines.iter().map(Vec::len).max().unwrap_or(0);
    let at = |depth: usize| {
        let top = |(unit, line): (usize, &Vec<usize>)| line.get(depth).copied().unwrap_or(tree.len() + unit);
        numbered(lines.iter().enumerate().map(top).collect())
    };
    (0..deepest).map(at).collect()
}

/// The same partition with its groups numbered as they come.
fn numbered(groups: Vec<usize>) -> Vec<usize> {
    let mut known: Vec<usize> = Vec::new();
    groups
        .into_iter()
        .map(|group| {
            known.iter().position(|k| *k == group).unwrap_or_else(|| {
                known.push(group);
                known.len() - 1
            })
        })
        .collect()
}

/// Fewest changes of group from parent to child that give the units these groups.
fn changes(tree: &[Node], groups: &[usize]) -> usize {
    let mut below: Vec<Vec<BTreeSet<usize>>> = vec![Vec::new(); tree.len()];
    let mut count = 0;
    for (index, node) in tree.iter().enumerate() {
        let children = std::mem::take(&mut below[index]);
        let among = |group: usize| children.iter().filter(|child| child.contains(&group)).count();
        let likely: BTreeSet<usize> = if let Some(unit) = node.unit {
            BTreeSet::from([groups[unit]])
        } else {
            let all: BTreeSet<usize> = children.iter().flatten().copied().collect();
            let most = all.iter().map(|group| among(*group)).max().unwrap_or(0);
            all.into_iter().filter(|group| among(*group) == most).collect()
        };
        let Some(group) = likely.first() else { continue };
        count += children.len() - among(*group);
        if let Some(parent) = node.parent {
            below[parent].push(likely);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::Burst;

    const MS: i64 = 1_000_000;

    /// One CPU for 4 s: each unit has one task that always wants to run, and turns of 4 ms so that
    /// each gets its share, in thousandths.
    fn shared(parts: &[i64]) -> Shares {
        let mut got = vec![0; parts.len()];
        let mut ready = vec![0; parts.len()];
        let mut bursts = Vec::new();
        for turn in 0..1000 {
            // Who is furthest behind.
            let next = (0..parts.len()).max_by_key(|u| parts[*u] * (turn + 1) - 1000 * got[*u]).unwrap_or(0);
            got[next] += 1;
            let start_ns = turn * 4 * MS;
            let end_ns = start_ns + 4 * MS;
            let ready_ns = std::mem::replace(&mut ready[next], end_ns);
            bursts.push(Burst { cpu: 0, unit: next, task: next, weight: 1024, ready_ns, start_ns, end_ns });
        }
        Shares::new(&bursts, parts.len(), 16)
    }

    fn unrelated(units: usize) -> Vec<Node> {
        (0..units).map(|unit| Node { parent: None, unit: Some(unit) }).collect()
    }

    #[test]
    fn who_shares_a_half_with_two_others_is_in_their_group() {
        let shares = shared(&[500, 166, 167, 167]);
        let found = partition(&shares, &unrelated(4), usize::MAX);
        assert_eq!(found, [Some(0), Some(1), Some(1), Some(1)]);
        let off = |groups: &[Option<usize>]| shares.misplaced(groups, &mut Scratch::default());
        assert!(off(&found) < 0.02, "{}", off(&found));
        // Without groups each had got a quarter: a quarter of the time was somebody else's.
        assert!((off(&[None; 4]) - 0.25).abs() < 0.02, "{}", off(&[None; 4]));
    }

    #[test]
    fn equal_shares_are_one_group() {
        assert_eq!(partition(&shared(&[250; 4]), &unrelated(4), usize::MAX), [Some(0); 4]);
    }

    #[test]
    fn of_two_that_would_do_the_sibling_is_taken() {
        // Three groups of a third; either of units 1 and 2 could be with 0 as far as their shares go.
        let shares = shared(&[333, 167, 166, 167, 167]);
        let node = |parent, unit| Node { parent, unit };
        // 1 and 3 have a parent, 2 and 4 another.
        let children = [node(Some(4), Some(1)), node(Some(5), Some(2)), node(Some(4), Some(3)), node(Some(5), Some(4))];
        let above = [node(Some(6), None), node(Some(6), None), node(None, None), node(None, Some(0))];
        let tree = [children, above].concat();
        let found = partition(&shares, &tree, usize::MAX);
        assert_eq!(found, [Some(0), Some(1), Some(2), Some(1), Some(2)]);
    }

    #[test]
    fn branches_are_what_lies_below_the_nodes_of_one_depth() {
        let node = |parent, unit| Node { parent, unit };
        // Unit 0 is the parent of 1; 2 and 3 have another one; both are below the top.
        let tree = [
            node(Some(3), Some(1)),
            node(Some(4), Some(2)),
            node(Some(4), Some(3)),
            node(Some(5), Some(0)),
            node(Some(5), None),
            node(None, None),
        ];
        assert_eq!(branches(&tree, 4), [vec![0, 0, 0, 0], vec![0, 0, 1, 1], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn the_bound_on_the_work_holds() {
        let shares = shared(&[500, 166, 167, 167]);
        // One evaluation: the start is what is known.
        assert_eq!(partition(&shares, &unrelated(4), shares.work()), [Some(0), Some(1), Some(2), Some(3)]);
    }
}
