// Package view turns a plan into what clients see of it: encoded resources,
// one view per source locality. A resource is encoded once, when somebody first
// asks for it, and then shared by all streams; what did not change between two
// plans is carried over as it is.
package view
