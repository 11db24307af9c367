//! Kernels of a few lines, each asserting one class of instructions or one kind of finding

mod basics;
