package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/process"
)

// askEvery is the time between two questions whether the server lives.
const askEvery = 100 * time.Millisecond

// answers is what came of asking a server whether it lives.
type answers struct {
	Slowest time.Duration `json:"slowest"`
	Failed  int           `json:"failed"` // questions that were not answered
}

// asker asks a server whether it lives, in a process of its own: this one is short of processor time while it
// attacks, and its own questions would wait for that.
type asker struct {
	cmd *exec.Cmd
	in  io.Closer
	out bytes.Buffer
}

// startAsker starts to ask the server with this admin address.
func startAsker(admin string, stderr io.Writer) (*asker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &asker{cmd: exec.Command(self, "-ask", admin)} //nolint:noctx,gosec // stop ends it, in order
	a.cmd.Stdout, a.cmd.Stderr = &a.out, stderr
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return a, a.cmd.Start()
}

// stop ends the process and returns what it found.
func (a *asker) stop() (found answers, err error) {
	if err := errors.Join(a.in.Close(), a.cmd.Wait()); err != nil {
		return found, fmt.Errorf("asking whether the server lives: %w", err)
	}
	return found, json.Unmarshal(a.out.Bytes(), &found)
}

// ask asks until the input ends, and writes what it found.
func ask(ctx context.Context, admin string, in io.Reader, out io.Writer) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in)
	}()
	server := process.Isobar{Admin: admin}
	var found answers
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		asked := time.Now()
		if _, err := server.Get(ctx, "/livez"); err != nil {
			found.Failed++
		}
		found.Slowest = max(found.Slowest, time.Since(asked))
		select {
		case <-ended:
			return json.NewEncoder(out).Encode(found)
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
