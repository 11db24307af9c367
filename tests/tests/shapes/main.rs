//! one artifact, any dimensions in its ranges  =>  the interpreter's numbers, or a sentence about what does not fit

mod compiled;
mod decoders;
mod minilm;
mod symbols;
