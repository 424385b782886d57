//! Lanes, as the scripts of the fence, its readers and the memory of a process tell them.

// Scripts of the fence, and readers of a lane in Redis.
mod fence_scripts;

// Lanes that are begun, and what a process remembers of them.
mod lane_states;

// Looks at lanes at rest.
mod at_rest;
