// Package archtest holds tests over the whole repository: rules of the
// architecture that the compiler and the linter cannot see, and that documents,
// examples and deployment files say what the code does. Nothing in them runs
// concurrently: they carry the build tag !race, and are five times as fast.
package archtest
