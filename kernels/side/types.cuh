// Names of types, the same on every side.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;

// Vectors that load and store as one access.
struct alignas(8) U2 { u32 x, y; };
struct alignas(16) U4 { u32 x, y, z, w; };
struct alignas(16) F4 { f32 x, y, z, w; };
