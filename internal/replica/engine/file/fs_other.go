//go:build !linux

package file

// networkFileSystem can't tell on this system.
func networkFileSystem(string) string { return "" }
