//! programs of ranks, run together, against the program of one
