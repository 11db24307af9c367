//! Each kind of problem in a short program, and a corrected program without findings

use super::*;

const ALL: u32 = u32::MAX;

/// Runs `play` on one block of two warps with 4 KiB of shared memory. Global memory has 64 KiB of initialised bytes at
/// 0x10000, and 4 KiB of uninitialised bytes at 0x30000.
fn with_block(play: impl FnOnce(&mut Block)) -> Outcome {
    let mut global = Global::new();
    global.alloc(0x10000, 0x10000);
    global.alloc(0x30000, 0x1000);
    global.host_write(0x10000, 0x10000);
    let launch = global.launch(1);
    let mut block = Block::new(&launch, 0, 64, 4096);
    play(&mut block);
    block.finish();
    launch.finish()
}

fn access(warp: u32, mask: u32, kind: Kind, bytes: u32, line: u32) -> Access {
    Access { warp, mask, bytes, kind, collective: false, line }
}

fn strided(base: u32, stride: u32) -> [u32; 32] {
    std::array::from_fn(|lane| base.wrapping_add(lane as u32 * stride))
}

fn shared(block: &mut Block, access: Access, offsets: [u32; 32]) -> Vec<Problem> {
    let mut problems = Vec::new();
    block.shared(&access, &offsets, &mut problems);
    problems
}

fn global(block: &mut Block, access: Access, addresses: [u64; 32]) -> Vec<Problem> {
    let mut problems = Vec::new();
    block.global(&access, &addresses, &mut problems);
    problems
}

fn barrier(block: &mut Block) {
    block.arrive(0, 0, ALL, true);
    block.arrive(0, 1, ALL, true);
    block.complete(0);
}

fn kinds(problems: &[Problem]) -> Vec<ProblemKind> {
    problems.iter().map(|problem| problem.kind).collect()
}

#[test]
fn a_barrier_between_two_warps_is_missed() {
    with_block(|block| {
        assert_eq!(shared(block, access(0, ALL, Kind::Write, 4, 7), strided(0, 4)), []);
        let found = shared(block, access(1, ALL, Kind::Read, 4, 9), strided(0, 4));
        assert_eq!(found.len(), 4);
        let other = Some(Other { warp: 0, lane: 0, line: 7, write: true });
        assert_eq!(found[0], Problem { kind: ProblemKind::Race, lane: 0, address: 0, other });
    });
    with_block(|block| {
        shared(block, access(0, ALL, Kind::Write, 4, 7), strided(0, 4));
        barrier(block);
        assert_eq!(shared(block, access(1, ALL, Kind::Read, 4, 9), strided(0, 4)), []);
    });
}

#[test]
fn lanes_of_a_warp_are_not_ordered_by_themselves() {
    let reversed = std::array::from_fn(|lane| 4 * (31 - lane as u32));
    with_block(|block| {
        shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
        assert_eq!(kinds(&shared(block, access(0, ALL, Kind::Read, 4, 2), reversed))[0], ProblemKind::Race);
    });
    with_block(|block| {
        shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
        block.warp_sync(0, ALL);
        assert_eq!(shared(block, access(0, ALL, Kind::Read, 4, 2), reversed), []);
        // Only the lower half of the warp synchronises, so only the accesses within this half are ordered.
        block.warp_sync(0, 0xffff);
        assert_eq!(kinds(&shared(block, access(0, 1, Kind::Write, 4, 3), [124; 32])), [], "lane 0 itself read it");
        assert_eq!(kinds(&shared(block, access(0, 1, Kind::Write, 4, 3), [0; 32])), [ProblemKind::Race]);
    });
}

#[test]
fn a_write_after_reads_of_several_warps_needs_a_barrier() {
    let play = |with_barrier: bool| {
        with_block(|block| {
            shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
            barrier(block);
            for warp in [0, 1] {
                assert_eq!(shared(block, access(warp, ALL, Kind::Read, 4, 2), [16; 32]), []);
            }
            if with_barrier {
                barrier(block);
            }
            let found = shared(block, access(0, 1 << 5, Kind::Write, 4, 3), [16; 32]);
            assert_eq!(found.is_empty(), with_barrier);
        })
    };
    play(false);
    play(true);
}

#[test]
fn halves_of_a_word_belong_to_different_threads() {
    with_block(|block| {
        let even = 0x5555_5555;
        assert_eq!(shared(block, access(0, ALL, Kind::Write, 2, 1), strided(0, 2)), []);
        assert_eq!(shared(block, access(1, even, Kind::Write, 1, 2), strided(64, 1)), []);
        assert_eq!(shared(block, access(1, !even, Kind::Write, 1, 3), strided(64, 1)).len(), 0);
        assert_eq!(kinds(&shared(block, access(1, 1, Kind::Write, 1, 4), [3; 32])), [ProblemKind::Race]);
    });
}

#[test]
fn bytes_that_nothing_wrote() {
    with_block(|block| {
        shared(block, access(0, 0xff, Kind::Write, 4, 1), strided(0, 4));
        let found = shared(block, access(0, 0x1ff, Kind::Read, 4, 2), strided(0, 4));
        assert_eq!(found, [Problem { kind: ProblemKind::Uninitialised, lane: 8, address: 32, other: None }]);
        let addresses = |base: u64| std::array::from_fn(|lane| base + 4 * lane as u64);
        assert_eq!(global(block, access(0, ALL, Kind::Read, 4, 3), addresses(0x10000)), []);
        let found = global(block, access(0, 3, Kind::Read, 4, 3), addresses(0x30000));
        assert_eq!(
            found.iter().map(|p| (p.kind, p.address)).collect::<Vec<_>>(),
            [(ProblemKind::Uninitialised, 0x30000), (ProblemKind::Uninitialised, 0x30004)]
        );
        assert_eq!(global(block, access(0, ALL, Kind::Write, 4, 4), addresses(0x30100)), []);
        assert_eq!(global(block, access(0, ALL, Kind::Read, 4, 5), addresses(0x30100)), []);
        assert_eq!(global(block, access(0, 1, Kind::Atomic, 4, 5), addresses(0x30200)).len(), 1);
    });
}

#[test]
fn one_instruction_stores_twice_to_an_address() {
    with_block(|block| {
        let offsets = std::array::from_fn(|lane| 8 * (lane as u32 / 2));
        let found = shared(block, access(0, 0b1111, Kind::Write, 4, 1), offsets);
        assert_eq!(
            found.iter().map(|p| (p.kind, p.lane, p.other.map(|o| o.lane))).collect::<Vec<_>>(),
            [(ProblemKind::Overlap, 1, Some(0)), (ProblemKind::Overlap, 3, Some(2))]
        );
    });
}

#[test]
fn atomics_do_not_race_with_each_other_only() {
    with_block(|block| {
        shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
        barrier(block);
        for warp in [0, 1, 0] {
            assert_eq!(shared(block, access(warp, ALL, Kind::Atomic, 4, 2), [0; 32]), []);
        }
        assert_eq!(kinds(&shared(block, access(1, 1, Kind::Read, 4, 3), [0; 32])), [ProblemKind::Race]);
    });
    with_block(|block| {
        // A thread's atomic access does not hide its earlier plain store.
        shared(block, access(0, 1, Kind::Write, 4, 1), [0; 32]);
        shared(block, access(0, 1, Kind::Atomic, 4, 2), [0; 32]);
        let found = shared(block, access(1, 1, Kind::Atomic, 4, 2), [0; 32]);
        assert_eq!(found[0].other, Some(Other { warp: 0, lane: 0, line: 1, write: true }));
    });
}

#[test]
fn a_flag_orders_when_released_and_acquired() {
    let play = |release: bool, acquire: bool| {
        with_block(|block| {
            let flag = Place::Shared(128);
            shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
            block.warp_sync(0, ALL);
            shared(block, access(0, 1, Kind::AtomicWrite, 4, 2), [128; 32]);
            block.publish(0, 0, flag, release, false, Scope::Block);
            shared(block, access(1, 1, Kind::AtomicRead, 4, 3), [128; 32]);
            block.observe(1, 0, flag, acquire, Scope::Block);
            let found = shared(block, access(1, 1, Kind::Read, 4, 4), [64; 32]);
            assert_eq!(found.is_empty(), release && acquire);
        })
    };
    play(true, true);
    play(true, false);
    play(false, true);
}

#[test]
fn named_barriers_order_their_participants() {
    let play = |barrier: u32| {
        with_block(|block| {
            shared(block, access(0, ALL, Kind::Write, 4, 1), strided(0, 4));
            block.arrive(1, 0, ALL, false);
            block.arrive(barrier, 1, ALL, true);
            block.complete(barrier);
            let found = shared(block, access(1, ALL, Kind::Read, 4, 2), strided(0, 4));
            assert_eq!(found.is_empty(), barrier == 1);
            // A warp that only arrives acquires nothing.
            shared(block, access(1, ALL, Kind::Write, 4, 3), strided(512, 4));
            assert_eq!(shared(block, access(0, 1, Kind::Read, 4, 4), strided(512, 4)).len(), 1);
        })
    };
    play(1);
    play(2);
}

#[test]
fn a_copy_is_nobodys_before_the_wait() {
    let from = std::array::from_fn(|lane| 0x10000 + 16 * lane as u64);
    let copy = access(0, ALL, Kind::Write, 16, 5);
    let start = |block: &mut Block| {
        let mut problems = Vec::new();
        block.copy_start(&copy, &strided(0, 16), &from, &[16; 32], &mut problems);
        problems
    };
    with_block(|block| {
        assert_eq!(start(block), []);
        let found = shared(block, access(0, 1, Kind::Read, 4, 6), [0; 32]);
        assert_eq!(found[0].kind, ProblemKind::InFlight);
        assert_eq!(found[0].other.map(|o| o.line), Some(5));
        assert_eq!(kinds(&start(block))[0], ProblemKind::InFlight, "two copies to the same bytes");
        let found = global(block, access(1, 1, Kind::Write, 4, 7), [0x10000; 32]);
        assert_eq!(found[0].kind, ProblemKind::InFlightSource);
    });
    with_block(|block| {
        assert_eq!(start(block), []);
        block.copy_land(&copy, &strided(0, 16), &from, &[16; 32]);
        assert_eq!(shared(block, access(0, ALL, Kind::Read, 16, 6), strided(0, 16)), []);
        // The wait orders the copy only for the issuing thread; other threads need a barrier after the wait.
        assert_eq!(kinds(&shared(block, access(1, 1, Kind::Read, 4, 7), [0; 32])), [ProblemKind::Race]);
    });
    with_block(|block| {
        start(block);
        block.copy_land(&copy, &strided(0, 16), &from, &[16; 32]);
        barrier(block);
        assert_eq!(shared(block, access(1, ALL, Kind::Read, 16, 7), strided(0, 16)), []);
        assert_eq!(global(block, access(0, 1, Kind::Write, 4, 8), [0x10000; 32]), []);
    });
    with_block(|block| {
        start(block);
        barrier(block);
        let found = shared(block, access(1, 1, Kind::Read, 4, 7), [0; 32]);
        assert_eq!((found[0].kind, found[0].other.map(|o| o.line)), (ProblemKind::InFlight, Some(5)));
    });
}

#[test]
fn a_matrix_load_belongs_to_the_whole_warp() {
    with_block(|block| {
        shared(block, access(0, ALL, Kind::Write, 16, 1), strided(0, 16));
        barrier(block);
        for warp in [0, 1] {
            let load = Access { collective: true, ..access(warp, ALL, Kind::Read, 16, 2) };
            assert_eq!(shared(block, load, strided(0, 16)), []);
        }
        let found = shared(block, access(0, 1 << 9, Kind::Write, 4, 3), [4; 32]);
        assert_eq!(found[0].other.map(|o| (o.warp, o.line)), Some((1, 2)), "the own warp's load is before");
    });
}

#[test]
fn nothing_panics_outside_of_memory() {
    with_block(|block| {
        for bytes in [0, 1, 3, 16, 4096, u32::MAX] {
            shared(block, access(40, ALL, Kind::Atomic, bytes, 1), strided(u32::MAX - 64, 4));
            global(block, access(1, ALL, Kind::Write, bytes, 1), [u64::MAX - 3; 32]);
            global(block, access(1, 0x8000_0001, Kind::Read, bytes, 1), [0x1_ffff; 32]);
            let mut problems = Vec::new();
            let copy = access(1, ALL, Kind::Read, bytes, 2);
            block.copy_start(&copy, &[u32::MAX; 32], &[u64::MAX; 32], &[bytes; 32], &mut problems);
            block.copy_land(&copy, &[4090; 32], &[5; 32], &[bytes; 32]);
        }
        block.complete(77);
        block.arrive(99, 99, ALL, true);
        block.warp_sync(99, 0);
        block.exit(99, ALL);
        block.exit(0, ALL);
        block.warp_sync(0, ALL);
        block.fence(0, 0, Scope::Device);
    });
}

/// Runs a closure in two blocks, in both orders, and returns the races, which must be the same.
fn two_blocks(play: impl Fn(&mut Block, u64)) -> Vec<Crossing> {
    let mut global = Global::new();
    global.alloc(0x10000, 0x10000);
    global.host_write(0x10000, 0x10000);
    let run = |order: [u64; 2]| {
        let launch = global.launch(2);
        let mut blocks = order.map(|id| (Block::new(&launch, id, 32, 0), id));
        blocks.iter_mut().for_each(|(block, id)| play(block, *id));
        blocks.into_iter().for_each(|(block, _)| block.finish());
        launch.finish().crossings
    };
    let (up, down) = (run([0, 1]), run([1, 0]));
    assert_eq!(up, down);
    up
}

fn lanes_at(base: u64) -> [u64; 32] {
    std::array::from_fn(|lane| base + 4 * lane as u64)
}

#[test]
fn blocks_write_to_the_same_bytes() {
    let found = two_blocks(|block, id| {
        global(block, access(0, ALL, Kind::Write, 4, 10 + id as u32), lanes_at(0x10000 + 124 * id));
    });
    let expected =
        Crossing { address: 0x1007c, bytes: 4, block: 1, line: 11, write: true, other_block: Some(0), other_line: 10 };
    assert_eq!(found, [expected]);
    let apart = |block: &mut Block, id: u64| {
        global(block, access(0, ALL, Kind::Write, 4, 1), lanes_at(0x10000 + 128 * id));
        global(block, access(0, ALL, Kind::Read, 4, 1), lanes_at(0x11000));
        global(block, access(0, ALL, Kind::Atomic, 4, 1), lanes_at(0x12000));
    };
    assert_eq!(two_blocks(apart), []);
}

#[test]
fn a_block_reads_what_another_writes() {
    let found = two_blocks(|block, id| {
        let kind = if id == 0 { Kind::Read } else { Kind::Write };
        global(block, access(0, ALL, kind, 4, 3), lanes_at(0x10000));
    });
    assert_eq!((found.len(), found[0].bytes, found[0].write, found[0].other_block), (1, 128, true, Some(0)));
    let found = two_blocks(|block, id| {
        let kind = if id == 0 { Kind::Atomic } else { Kind::Read };
        global(block, access(0, ALL, kind, 4, 3), lanes_at(0x10000));
    });
    assert_eq!(found.len(), 1);
}

#[test]
fn the_last_block_may_read_all_after_fences() {
    let mut global_memory = Global::new();
    global_memory.alloc(0x10000, 0x10000);
    global_memory.host_write(0x10000, 0x10000);
    let play = |with_fence: bool| {
        let launch = global_memory.launch(3);
        for id in 0..3 {
            let mut block = Block::new(&launch, id, 32, 0);
            global(&mut block, access(0, ALL, Kind::Write, 4, 1), lanes_at(0x10000 + 128 * id));
            if with_fence {
                block.fence(0, ALL, Scope::Device);
            }
            let counter = Place::Global(0x18000);
            block.publish(0, 0, counter, false, true, Scope::Device);
            global(&mut block, access(0, 1, Kind::Atomic, 4, 2), lanes_at(0x18000));
            block.observe(0, 0, counter, false, Scope::Device);
            if id == 2 {
                block.fence(0, ALL, Scope::Device);
                (0..3).for_each(|part| {
                    assert_eq!(
                        global(&mut block, access(0, ALL, Kind::Read, 4, 4), lanes_at(0x10000 + 128 * part)),
                        []
                    );
                });
            }
            block.finish();
        }
        launch.finish().crossings.len()
    };
    assert_eq!(play(true), 0);
    assert_eq!(play(false), 1, "both unfenced partial sums lie in one page");
}

#[test]
fn sectors_are_counted_once() {
    let outcome = with_block(|block| {
        for _ in 0..3 {
            global(block, access(0, ALL, Kind::Read, 4, 1), lanes_at(0x10010));
            global(block, access(1, ALL, Kind::Read, 4, 1), lanes_at(0x10020));
        }
        global(block, access(0, ALL, Kind::Write, 4, 1), std::array::from_fn(|lane| 0x30000 + 64 * lane as u64));
    });
    assert_eq!(
        outcome.sectors,
        [Sectors { address: 0x10000, loads: 5, stores: 0 }, Sectors { address: 0x30000, loads: 0, stores: 32 }]
    );
}
