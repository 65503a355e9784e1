package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts run this program as a process of its own: its exit
// code and streams are what users see.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"isobar": main})
}

// TestScripts runs testdata/script. `want CODE isobar ...` runs a command that
// must exit with CODE.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", // to be read as a diff before it is committed
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"want": wantExit},
	})
}
