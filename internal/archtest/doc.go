// Package archtest holds tests over the whole repository: rules of the
// architecture that the compiler and the linter cannot see, and that documents,
// examples and deployment files say what the code does.
package archtest
