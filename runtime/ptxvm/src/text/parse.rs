//! tokens  =>  [`Unit`]: directives, functions and variables; `body` parses the statements

use super::ast::{Function, Init, Unit, Variable};
use super::lex::{Number, Spanned, Token, lex};
use super::types::{Space, Ty};
use crate::Error;

pub struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
}

pub fn parse(text: &str) -> Result<Unit, Error> {
    let mut parser = Parser { tokens: lex(text)?, at: 0 };
    let mut unit = Unit::default();
    while parser.peek() != Token::End {
        item(&mut parser, &mut unit)?;
    }
    Ok(unit)
}

fn item(parser: &mut Parser, unit: &mut Unit) -> Result<(), Error> {
    let line = parser.line();
    let mut external = false;
    loop {
        match parser.word()? {
            ".extern" => external = true,
            ".visible" | ".weak" | ".common" => {}
            ".version" => {
                unit.version = parser.rest_of_line(line);
                return Ok(());
            }
            ".target" => {
                unit.target = parser.rest_of_line(line);
                return Ok(());
            }
            ".address_size" => {
                let bits = parser.int()?;
                if bits != 64 {
                    return Err(Error::new(line, format!("addresses of {bits} bits; only 64 are supported")));
                }
                return Ok(());
            }
            ".file" | ".loc" => {
                parser.rest_of_line(line);
                return Ok(());
            }
            ".pragma" => return parser.skip_to_semicolon(),
            ".section" => return parser.skip_braces(),
            ".entry" => {
                unit.functions.push(function(parser, line, true)?);
                return Ok(());
            }
            ".func" => {
                unit.functions.push(function(parser, line, false)?);
                return Ok(());
            }
            word => {
                let Some(space) = word.strip_prefix('.').and_then(Space::named) else {
                    return Err(Error::new(line, format!("unknown directive `{word}`")));
                };
                declarations(parser, Some(space), external, line, &mut unit.variables)?;
                return Ok(());
            }
        }
    }
}

fn function(parser: &mut Parser, line: u32, entry: bool) -> Result<Function, Error> {
    let mut results = Vec::new();
    while !entry && matches!(parser.peek(), Token::Word(word) if word.starts_with('.')) {
        let word = parser.word()?;
        if word != ".noreturn" {
            return Err(Error::new(line, format!("unknown function attribute `{word}`")));
        }
    }
    if !entry && parser.peek() == Token::Mark(b'(') {
        results = params(parser)?;
    }
    let name = parser.word()?.to_owned();
    let params = if parser.peek() == Token::Mark(b'(') { params(parser)? } else { Vec::new() };
    let mut function =
        Function { name, line, entry, results, params, body: None, threads_max: None, threads_exact: None };
    loop {
        let here = parser.line();
        match parser.peek() {
            Token::Mark(b';') => {
                parser.next();
                return Ok(function);
            }
            Token::Mark(b'{') => {
                parser.next();
                function.body = Some(super::body::block(parser, 0)?);
                return Ok(function);
            }
            Token::Word(word) => {
                parser.next();
                match word {
                    ".maxntid" => function.threads_max = Some(extents(parser)?),
                    ".reqntid" => function.threads_exact = Some(extents(parser)?),
                    ".minnctapersm" | ".maxnctapersm" | ".maxnreg" | ".reqnctapercluster" | ".maxclusterrank" => {
                        extents(parser)?;
                    }
                    ".noreturn" | ".explicitcluster" => {}
                    ".pragma" => parser.skip_to_semicolon()?,
                    other => return Err(Error::new(here, format!("unknown directive `{other}` of a function"))),
                }
            }
            Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => {
                return Err(parser.expected("`{` or `;` after a function's head"));
            }
        }
    }
}

fn extents(parser: &mut Parser) -> Result<[u32; 3], Error> {
    let mut values = [1; 3];
    for (i, value) in values.iter_mut().enumerate() {
        if i > 0 && !parser.eat(b',') {
            break;
        }
        let line = parser.line();
        *value = u32::try_from(parser.int()?).map_err(|_| Error::new(line, "this extent is too large"))?;
    }
    Ok(values)
}

fn params(parser: &mut Parser) -> Result<Vec<Variable>, Error> {
    parser.expect(b'(')?;
    let mut variables = Vec::new();
    while !parser.eat(b')') {
        let line = parser.line();
        let word = parser.word()?;
        let space = match word {
            ".param" => Some(Space::Param),
            ".reg" => None,
            _ => return Err(Error::new(line, format!("expected `.param`, found `{word}`"))),
        };
        variables.push(declaration(parser, space, false, line)?);
        parser.eat(b',');
    }
    Ok(variables)
}

/// Parses one or several variables up to the semicolon; the name of the state space has been read.
pub fn declarations(
    parser: &mut Parser,
    space: Option<Space>,
    external: bool,
    line: u32,
    into: &mut Vec<Variable>,
) -> Result<(), Error> {
    let first = declaration(parser, space, external, line)?;
    let pattern = Variable { name: String::new(), array: false, numbered: None, init: Vec::new(), ..first.clone() };
    into.push(first);
    while parser.eat(b',') {
        into.push(declarator(parser, pattern.clone())?);
    }
    parser.expect(b';')
}

fn declaration(parser: &mut Parser, space: Option<Space>, external: bool, line: u32) -> Result<Variable, Error> {
    let (mut ty, mut lanes, mut align) = (None, 1, 0);
    while let Token::Word(word) = parser.peek() {
        if !word.starts_with('.') {
            break;
        }
        parser.next();
        match word {
            ".align" => {
                let value = parser.int()?;
                if !value.is_power_of_two() || value > 1024 {
                    return Err(Error::new(line, format!("alignment {value} is not a power of two up to 1024")));
                }
                align = value as u32;
            }
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            ".ptr" | ".global" | ".shared" | ".local" | ".const" => {}
            ".attribute" => parser.skip_parens()?,
            other => {
                ty = Some(Ty::named(&other[1..]).ok_or_else(|| Error::new(line, format!("unknown type `{other}`")))?);
            }
        }
    }
    let ty = ty.ok_or_else(|| Error::new(line, "this declaration names no type"))?;
    let align = if align == 0 { ty.bytes() * lanes } else { align };
    let variable = Variable {
        name: String::new(),
        line,
        space,
        ty,
        lanes,
        align,
        elements: 1,
        array: false,
        external,
        numbered: None,
        init: Vec::new(),
    };
    declarator(parser, variable)
}

fn declarator(parser: &mut Parser, mut variable: Variable) -> Result<Variable, Error> {
    let line = parser.line();
    variable.name = parser.word()?.to_owned();
    variable.elements = 1;
    if parser.eat(b'<') {
        let count = parser.int()?;
        variable.numbered = Some(u32::try_from(count).map_err(|_| Error::new(line, "too many registers"))?);
        parser.expect(b'>')?;
    }
    let mut open = false;
    while parser.eat(b'[') {
        variable.array = true;
        if parser.eat(b']') {
            open = true;
            continue;
        }
        variable.elements = variable.elements.saturating_mul(parser.int()?);
        parser.expect(b']')?;
    }
    if parser.eat(b'=') {
        initial(parser, &mut variable.init, 0)?;
    }
    if open {
        variable.elements = variable.init.len() as u64;
    }
    Ok(variable)
}

fn initial(parser: &mut Parser, into: &mut Vec<Init>, depth: u32) -> Result<(), Error> {
    if depth > 8 {
        return Err(Error::new(parser.line(), "this initial value nests more than 8 deep"));
    }
    if parser.eat(b'{') {
        while !parser.eat(b'}') {
            initial(parser, into, depth + 1)?;
            parser.eat(b',');
        }
        return Ok(());
    }
    if let Token::Word(word) = parser.peek() {
        parser.next();
        let name = if word == "generic" {
            parser.expect(b'(')?;
            let name = parser.word()?;
            parser.expect(b')')?;
            name
        } else {
            word
        };
        let offset = parser.sum()?;
        into.push(Init::Address(name.to_owned(), offset));
        return Ok(());
    }
    into.push(Init::Number(parser.number()?));
    Ok(())
}

impl<'a> Parser<'a> {
    pub fn peek(&self) -> Token<'a> {
        self.tokens[self.at].token
    }

    pub fn peek_after(&self) -> Token<'a> {
        self.tokens.get(self.at + 1).map_or(Token::End, |spanned| spanned.token)
    }

    /// Returns the current token and advances, but not past the last one, which is [`Token::End`].
    pub fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub fn expected(&self, what: &str) -> Error {
        let found = match self.peek() {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("the number {number:?}"),
            Token::Text(text) => format!("the string {text:?}"),
            Token::Mark(mark) => format!("`{}`", char::from(mark)),
            Token::End => "the end of the text".to_owned(),
        };
        Error::new(self.line(), format!("expected {what}, found {found}"))
    }

    pub fn word(&mut self) -> Result<&'a str, Error> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => Err(self.expected("a name")),
        }
    }

    pub fn eat(&mut self, mark: u8) -> bool {
        let found = self.peek() == Token::Mark(mark);
        if found {
            self.next();
        }
        found
    }

    pub fn expect(&mut self, mark: u8) -> Result<(), Error> {
        if self.eat(mark) { Ok(()) } else { Err(self.expected(&format!("`{}`", char::from(mark)))) }
    }

    pub fn int(&mut self) -> Result<u64, Error> {
        match self.peek() {
            Token::Number(Number::Int(value)) => {
                self.next();
                Ok(value)
            }
            _ => Err(self.expected("a whole number")),
        }
    }

    /// Parses a number that any number of signs may precede.
    pub fn number(&mut self) -> Result<Number, Error> {
        let mut negative = false;
        loop {
            if self.eat(b'-') {
                negative = !negative;
            } else if !self.eat(b'+') {
                break;
            }
        }
        let Token::Number(number) = self.peek() else {
            return Err(self.expected("a number"));
        };
        self.next();
        Ok(match (number, negative) {
            (number, false) => number,
            (Number::Int(value), true) => Number::Int(value.wrapping_neg()),
            (Number::F32(bits), true) => Number::F32(bits ^ 0x8000_0000),
            (Number::F64(bits), true) => Number::F64(bits ^ (1 << 63)),
        })
    }

    /// Parses an offset: `+4`, `-4`, `+-4`, or nothing.
    pub fn sum(&mut self) -> Result<i64, Error> {
        let mut total = 0i64;
        while matches!(self.peek(), Token::Mark(b'+' | b'-')) {
            let line = self.line();
            match self.number()? {
                Number::Int(value) => total = total.wrapping_add(value as i64),
                Number::F32(_) | Number::F64(_) => return Err(Error::new(line, "an offset is a whole number")),
            }
        }
        Ok(total)
    }

    /// Returns the words and numbers up to the end of the line, for directives without a semicolon.
    fn rest_of_line(&mut self, line: u32) -> String {
        let mut words = Vec::new();
        while self.peek() != Token::End && self.line() == line {
            match self.next() {
                Token::Word(word) | Token::Text(word) => words.push(word.to_owned()),
                Token::Number(Number::F64(bits)) => words.push(f64::from_bits(bits).to_string()),
                Token::Number(Number::Int(value)) => words.push(value.to_string()),
                Token::Number(Number::F32(_)) | Token::Mark(_) | Token::End => {}
            }
        }
        words.join(" ")
    }

    pub fn skip_line(&mut self, line: u32) {
        self.rest_of_line(line);
    }

    pub fn skip_to_semicolon(&mut self) -> Result<(), Error> {
        loop {
            match self.next() {
                Token::Mark(b';') => return Ok(()),
                Token::End => return Err(self.expected("`;`")),
                Token::Word(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) => {}
            }
        }
    }

    fn skip_parens(&mut self) -> Result<(), Error> {
        self.expect(b'(')?;
        loop {
            match self.next() {
                Token::Mark(b')') => return Ok(()),
                Token::End => return Err(self.expected("`)`")),
                Token::Word(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) => {}
            }
        }
    }

    fn skip_braces(&mut self) -> Result<(), Error> {
        while self.peek() != Token::Mark(b'{') {
            if self.next() == Token::End {
                return Err(self.expected("`{`"));
            }
        }
        loop {
            match self.next() {
                Token::Mark(b'}') => return Ok(()),
                Token::End => return Err(self.expected("`}`")),
                Token::Word(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) => {}
            }
        }
    }
}
