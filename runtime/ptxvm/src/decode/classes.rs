//! The instruction classes of loads and stores, by state space

use crate::report::Class;
use crate::text::types::Space;

pub fn load(space: Space) -> Class {
    match space {
        Space::Global | Space::Const => Class::LoadGlobal,
        Space::Shared => Class::LoadShared,
        Space::Local => Class::LoadLocal,
        Space::Param => Class::LoadParam,
        Space::Generic => Class::Load,
    }
}

pub fn store(space: Space) -> Class {
    match space {
        Space::Global | Space::Const => Class::StoreGlobal,
        Space::Shared => Class::StoreShared,
        Space::Local | Space::Param => Class::StoreLocal,
        Space::Generic => Class::Store,
    }
}
