//! `{ .reg .b32 %r<9>; L: @p add.s32 %r1, %r2, 4; }`  =>  statements

use super::ast::{Address, Ins, Operand, Stmt};
use super::lex::{Number, Token};
use super::parse::{Parser, declarations};
use super::types::Space;
use crate::Error;

/// Maximum nesting depth of blocks. Compilers emit nested blocks for calls and inline assembly, rarely more than three
/// deep.
const DEPTH_MAX: u32 = 64;

/// Parses statements up to the closing brace; the opening brace has been read.
pub fn block(parser: &mut Parser, depth: u32) -> Result<Vec<Stmt>, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(parser.line(), format!("blocks nest more than {DEPTH_MAX} deep")));
    }
    let mut statements = Vec::new();
    while !parser.eat(b'}') {
        statement(parser, depth, &mut statements)?;
    }
    Ok(statements)
}

fn statement(parser: &mut Parser, depth: u32, into: &mut Vec<Stmt>) -> Result<(), Error> {
    let line = parser.line();
    match parser.peek() {
        Token::Mark(b'{') => {
            parser.next();
            into.push(Stmt::Block(block(parser, depth + 1)?));
            Ok(())
        }
        Token::Mark(b';') => {
            parser.next();
            Ok(())
        }
        Token::Mark(b'@') => instruction(parser, into),
        Token::Word(word) if word.starts_with('.') => {
            parser.next();
            directive(parser, word, line, into)
        }
        Token::Word(word) if parser.peek_after() == Token::Mark(b':') => {
            parser.next();
            parser.next();
            label(parser, word, line, into)
        }
        Token::Word(_) => instruction(parser, into),
        Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => {
            Err(parser.expected("an instruction, a label or `}`"))
        }
    }
}

fn directive(parser: &mut Parser, word: &str, line: u32, into: &mut Vec<Stmt>) -> Result<(), Error> {
    let space = match word {
        ".loc" | ".file" => {
            parser.skip_line(line);
            return Ok(());
        }
        ".pragma" => return parser.skip_to_semicolon(),
        ".reg" => None,
        _ => match word.strip_prefix('.').and_then(Space::named) {
            Some(space) => Some(space),
            None => return Err(Error::new(line, format!("unknown directive `{word}` in a function"))),
        },
    };
    let mut variables = Vec::new();
    declarations(parser, space, false, line, &mut variables)?;
    into.extend(variables.into_iter().map(Stmt::Variable));
    Ok(())
}

fn label(parser: &mut Parser, name: &str, line: u32, into: &mut Vec<Stmt>) -> Result<(), Error> {
    match parser.peek() {
        Token::Word(".branchtargets") => {
            parser.next();
            let mut targets = vec![parser.word()?.to_owned()];
            while parser.eat(b',') {
                targets.push(parser.word()?.to_owned());
            }
            parser.expect(b';')?;
            into.push(Stmt::Targets(name.to_owned(), targets));
        }
        // A prototype only gives the type of an indirect call, and indirect calls are refused where they occur.
        Token::Word(".callprototype") => parser.skip_to_semicolon()?,
        Token::Word(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => {
            into.push(Stmt::Label(name.to_owned(), line));
        }
    }
    Ok(())
}

fn instruction(parser: &mut Parser, into: &mut Vec<Stmt>) -> Result<(), Error> {
    let line = parser.line();
    let guard = if parser.eat(b'@') {
        let negated = parser.eat(b'!');
        Some((parser.word()?.to_owned(), negated))
    } else {
        None
    };
    let opcode = parser.word()?.to_owned();
    let mut operands = Vec::new();
    while !parser.eat(b';') {
        if !operands.is_empty() {
            parser.expect(b',')?;
        }
        operands.push(operand(parser, 0)?);
    }
    into.push(Stmt::Ins(Ins { line, guard, opcode, operands }));
    Ok(())
}

fn operand(parser: &mut Parser, depth: u32) -> Result<Operand, Error> {
    if depth > 2 {
        return Err(parser.expected("a register or a number"));
    }
    match parser.peek() {
        Token::Mark(b'{') => {
            parser.next();
            Ok(Operand::Vector(list(parser, b'}', depth)?))
        }
        Token::Mark(b'(') => {
            parser.next();
            Ok(Operand::List(list(parser, b')', depth)?))
        }
        Token::Mark(b'[') => {
            parser.next();
            let address = address(parser)?;
            if !parser.eat(b',') {
                parser.expect(b']')?;
                return Ok(Operand::Address(address));
            }
            parser.expect(b'{')?;
            let coordinates = list(parser, b'}', depth)?;
            parser.expect(b']')?;
            Ok(Operand::Tensor(address, coordinates))
        }
        Token::Mark(b'!') => {
            parser.next();
            Ok(Operand::Not(parser.word()?.to_owned()))
        }
        Token::Word(word) => {
            parser.next();
            if parser.eat(b'|') {
                let second = parser.word()?.to_owned();
                return Ok(Operand::Pair(Box::new(Operand::Name(word.to_owned())), Box::new(Operand::Name(second))));
            }
            match parser.peek() {
                Token::Mark(b'+' | b'-') => Ok(Operand::Sum(word.to_owned(), parser.sum()?)),
                _ => Ok(Operand::Name(word.to_owned())),
            }
        }
        Token::Number(_) | Token::Mark(_) => Ok(Operand::Number(parser.number()?)),
        Token::Text(_) | Token::End => Err(parser.expected("an operand")),
    }
}

fn list(parser: &mut Parser, close: u8, depth: u32) -> Result<Vec<Operand>, Error> {
    let mut operands = Vec::new();
    while !parser.eat(close) {
        if !operands.is_empty() {
            parser.expect(b',')?;
        }
        operands.push(operand(parser, depth + 1)?);
    }
    Ok(operands)
}

/// Parses an address in brackets, up to the token that follows it.
fn address(parser: &mut Parser) -> Result<Address, Error> {
    Ok(match parser.peek() {
        Token::Word(word) => {
            parser.next();
            Address { base: Some(word.to_owned()), offset: parser.sum()? }
        }
        _ => match parser.number()? {
            Number::Int(value) => Address { base: None, offset: (value as i64).wrapping_add(parser.sum()?) },
            Number::F32(_) | Number::F64(_) => return Err(parser.expected("a whole number as an address")),
        },
    })
}
