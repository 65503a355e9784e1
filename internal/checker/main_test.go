package checker_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// serverVariable makes the test's program a web server for the benchmark: in
// a process of its own it costs the checker neither open files nor time.
const serverVariable = "CHECKER_TEST_WEB_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		serveUntilEOF()
		return
	}
	goleak.VerifyTestMain(m)
}

// serveUntilEOF prints its address and serves until its standard input ends.
func serveUntilEOF() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }))
	defer srv.Close()
	_, _ = fmt.Fprintln(os.Stdout, srv.Listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
