package testhelp

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"testing"
	"time"
)

// Redis is a redis-server, a process of its own on loopback.
type Redis struct {
	Address string // host:port, the same after each start
	Cmd     *exec.Cmd

	port, dir string
}

// NewRedis starts a redis-server and stops it when the test ends. It fails the
// test where the programs redis-server and redis-cli are missing.
func NewRedis(tb testing.TB) *Redis {
	tb.Helper()
	r := &Redis{Address: FreePort(tb), dir: tb.TempDir()}
	var err error
	if _, r.port, err = net.SplitHostPort(r.Address); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Kill)
	r.Start(tb)
	return r
}

// Start starts the server and waits until it answers.
func (r *Redis) Start(tb testing.TB) {
	tb.Helper()
	server := redisProgram(tb, "redis-server")
	//nolint:gosec // G204: the program is found by its name, the arguments are the test's own
	r.Cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), server, "--port", r.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", r.dir)
	if err := r.Cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	for range 2400 {
		if out, err := r.command(tb, "PING"); err == nil && bytes.HasPrefix(out, []byte("PONG")) {
			return
		}
		time.Sleep(25 * time.Millisecond) //nolint:forbidigo // a real process: bounded polling
	}
	tb.Fatal("redis-server does not answer")
}

// Do sends a command and fails the test if the server refuses it.
func (r *Redis) Do(tb testing.TB, words ...string) {
	tb.Helper()
	if out, err := r.command(tb, words...); err != nil {
		tb.Fatalf("redis-cli %q: %v\n%s", words, err, out)
	}
}

func (r *Redis) command(tb testing.TB, words ...string) ([]byte, error) {
	tb.Helper()
	args := append([]string{"-e", "-h", "127.0.0.1", "-p", r.port}, words...)
	//nolint:gosec // G204: as above
	return exec.CommandContext(tb.Context(), redisProgram(tb, "redis-cli"), args...).CombinedOutput()
}

// Kill kills the server. A killed server can be started again.
func (r *Redis) Kill() {
	if r.Cmd != nil {
		_ = r.Cmd.Process.Kill()
		_ = r.Cmd.Wait() // "signal: killed"
		r.Cmd = nil
	}
}

func redisProgram(tb testing.TB, name string) string {
	tb.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("this test needs %s: install the Debian package redis-server (brew install redis)", name)
	}
	return program
}
