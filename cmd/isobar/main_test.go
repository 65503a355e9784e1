package main

import (
	"io"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/grpclog"
)

// TestMain lets scripts run this program as a process of its own: its exit
// code and streams are what users see.
func TestMain(m *testing.M) {
	// Servers that are killed make grpc-go log errors, and they are meant to die.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	testscript.Main(m, map[string]func(){"isobar": main, "xds-client": xdsClient})
}

// TestScripts runs testdata/script. `want CODE isobar ...` runs a command that
// must exit with CODE.
func TestScripts(t *testing.T) {
	sayHowToUpdate(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", // to be read as a diff before it is committed
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"want": wantExit},
	})
}

// sayHowToUpdate logs, if a script fails, the command that writes its expected output.
func sayHowToUpdate(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("if only the expected output differs: UPDATE_SCRIPTS=1 go test ./cmd/isobar -run '^%s$' writes it; read the diff", t.Name())
		}
	})
}
