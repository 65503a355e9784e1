package config

import (
	"time"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Trace is the rolling trace that the server keeps of what it decides.
type Trace struct {
	Directory string
	Keep      time.Duration // for how long
	MaxBytes  int64         // at most, of all files together
}

// Bounds and defaults of Trace.
const (
	DefaultTraceKeep      = 24 * time.Hour
	DefaultTraceMegabytes = 1_000

	minTraceKeep = 10 * time.Minute
	maxTraceKeep = 90 * 24 * time.Hour
	megabyte     = 1_000_000
)

var traceSize = strict.Range{Min: 10, Max: 1e6, Unit: "MB", ZeroHint: "remove `trace` to keep none"}

func readTrace(v strict.Value) *Trace {
	t := &Trace{Keep: DefaultTraceKeep, MaxBytes: DefaultTraceMegabytes * megabyte}
	directory := pathField("directory", &t.Directory)
	directory.Required = true
	v.Object([]strict.Field{
		directory,
		{Name: "keep", Read: func(v strict.Value) {
			if d, ok := v.Duration(minTraceKeep, maxTraceKeep); ok {
				t.Keep = d
			}
		}},
		{Name: "max_megabytes", Read: func(v strict.Value) {
			if n, ok := v.Int(traceSize); ok {
				t.MaxBytes = n * megabyte
			}
		}},
	})
	return t
}
