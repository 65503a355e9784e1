package main

import (
	"testing"

	"golang.org/x/mod/zip"
)

// TestModuleZip: no file has a name that modules may not have, such as nul, which makes
// `go install` of every version fail.
func TestModuleZip(t *testing.T) {
	files, err := zip.CheckDir("..")
	if err != nil || len(files.Invalid) > 0 {
		t.Error(err, files.Invalid)
	}
}
