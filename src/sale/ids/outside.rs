//! A serializer in front of another one, which translates each order id on its way, and hands the rest on as it is.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Value;

use super::public::{ORDER_ID, PublicIds, SENTENCE};

/// A value as it leaves the house.
pub struct Outside<'a, T: ?Sized> {
    ids: &'a PublicIds,
    value: &'a T,
}

impl PublicIds {
    /// A value as it leaves the house: with the ids outside.
    pub fn outside<'a, T: Serialize + ?Sized>(&'a self, value: &'a T) -> Outside<'a, T> {
        Outside { ids: self, value }
    }
}

impl<T: Serialize + ?Sized> Serialize for Outside<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.ids.are_keyed() {
            true => self.value.serialize(Edge { ids: self.ids, to }),
            false => self.value.serialize(to),
        }
    }
}

/// The serializer, and each of its parts.
struct Edge<'a, S> {
    ids: &'a PublicIds,
    to: S,
}

macro_rules! handed_on {
    ($($method:ident($value:ty)),*) => {$(
        fn $method(self, value: $value) -> Result<S::Ok, S::Error> {
            self.to.$method(value)
        }
    )*};
}

/// Methods that begin a value with parts.
macro_rules! begun {
    ($($method:ident($($argument:ident: $type:ty),*) -> $part:ident),*) => {$(
        fn $method(self, $($argument: $type),*) -> Result<Self::$part, S::Error> {
            let ids = self.ids;
            self.to.$method($($argument),*).map(|to| Edge { ids, to })
        }
    )*};
}

impl<'a, S: Serializer> Serializer for Edge<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Edge<'a, S::SerializeSeq>;
    type SerializeTuple = Edge<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Edge<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Edge<'a, S::SerializeTupleVariant>;
    type SerializeMap = Edge<'a, S::SerializeMap>;
    type SerializeStruct = Edge<'a, S::SerializeStruct>;
    type SerializeStructVariant = Edge<'a, S::SerializeStructVariant>;

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        match name {
            ORDER_ID => {
                let order = text_of(value)?.parse().map_err(S::Error::custom)?;
                self.ids.public(order).serialize(self.to)
            }
            SENTENCE => self.to.serialize_str(&self.ids.sentence(&text_of(value)?)),
            _ => self.to.serialize_newtype_struct(name, &self.ids.outside(value)),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.to.serialize_some(&self.ids.outside(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_newtype_variant(name, index, variant, &self.ids.outside(value))
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.to.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.to.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_unit_variant(name, index, variant)
    }

    fn is_human_readable(&self) -> bool {
        self.to.is_human_readable()
    }

    handed_on!(
        serialize_bool(bool),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_u128(u128),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_unit_struct(&'static str)
    );

    begun!(
        serialize_seq(length: Option<usize>) -> SerializeSeq,
        serialize_tuple(length: usize) -> SerializeTuple,
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct,
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeTupleVariant,
        serialize_map(length: Option<usize>) -> SerializeMap,
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct,
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeStructVariant
    );
}

/// The string that a value is.
fn text_of<T: Serialize + ?Sized, E: Error>(value: &T) -> Result<String, E> {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => Ok(text),
        _ => Err(E::custom("an id or a sentence is a string")),
    }
}

/// Parts of a value, translated one by one.
macro_rules! parts {
    ($($trait:ident { $($method:ident),* } { $($named:ident),* })*) => {$(
        impl<S: $trait> $trait for Edge<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            $(fn $method<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), S::Error> {
                self.to.$method(&self.ids.outside(part))
            })*

            $(fn $named<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                part: &T,
            ) -> Result<(), S::Error> {
                self.to.$named(name, &self.ids.outside(part))
            })*

            fn end(self) -> Result<S::Ok, S::Error> {
                self.to.end()
            }
        }
    )*};
}

parts! {
    SerializeSeq { serialize_element } {}
    SerializeTuple { serialize_element } {}
    SerializeTupleStruct { serialize_field } {}
    SerializeTupleVariant { serialize_field } {}
    SerializeMap { serialize_key, serialize_value } {}
    SerializeStruct {} { serialize_field }
    SerializeStructVariant {} { serialize_field }
}
