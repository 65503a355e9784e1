// Package archtest holds tests over the syntax tree of the module: rules of the
// architecture that the compiler and the linter cannot see.
package archtest
