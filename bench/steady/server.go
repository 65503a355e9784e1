package main

import (
	"context"
	"fmt"
	"io"

	"github.com/isobar-xds/isobar/bench/internal/process"
)

// server is a real `isobar serve` in a process of its own.
type server struct {
	*process.Isobar

	heap *collections
}

// configuration of the server: defaults, but for what a test has to set.
const configuration = `
report_interval: %v
tick: %v
network:
  latency_ms:
    - {from: region-0, to: region-1, ms: 20}
    - {from: region-0, to: region-2, ms: 60}
    - {from: region-0, to: region-3, ms: 90}
    - {from: region-1, to: region-2, ms: 40}
    - {from: region-1, to: region-3, ms: 70}
    - {from: region-2, to: region-3, ms: 30}
services: []
`

func startServer(ctx context.Context, binary string, stderr io.Writer) (*server, error) {
	heap := &collections{rest: stderr}
	s, err := process.StartIsobar(ctx, process.IsobarOptions{
		Binary: binary, Config: fmt.Sprintf(configuration, interval, interval), Env: []string{traced}, Stdout: stderr, Stderr: heap,
	})
	if err != nil {
		return nil, err
	}
	return &server{s, heap}, nil
}
