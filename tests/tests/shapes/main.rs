//! one artifact, any dimensions in its ranges  =>  the interpreter's numbers, or an error that names what does not fit

mod compiled;
mod decoders;
mod minilm;
mod symbols;
