package main

import (
	"math"
	"strings"
	"testing"
)

// TestProgressBarStaysInItsBounds: how much is done may be unknown, as of a trace
// that comes through a pipe or grows while it is read.
func TestProgressBarStaysInItsBounds(t *testing.T) {
	for _, tt := range []struct {
		done float64
		want string
	}{
		{0, "[" + strings.Repeat("-", 30) + "]   0%  x"},
		{0.5, "[" + strings.Repeat("#", 15) + strings.Repeat("-", 15) + "]  50%  x"},
		{1, "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{4096, "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{math.Inf(1), "[" + strings.Repeat("#", 30) + "] 100%  x"},
		{-0.1, "[" + strings.Repeat("-", 30) + "]   0%  x"},
		{math.NaN(), "[" + strings.Repeat("-", 30) + "]   0%  x"},
	} {
		var out strings.Builder
		bar := progressBar{w: &out, all: 1}
		bar.line("x", tt.done)
		if got := strings.TrimPrefix(out.String(), clearTheLine); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.done, got, tt.want)
		}
	}
}
