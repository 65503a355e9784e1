package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCollections takes out what the runtime tells, in whatever pieces it comes,
// and nothing else.
func TestCollections(t *testing.T) {
	text := "level=WARN msg=\"gc 1, 2->3 MB\"\n" +
		"gc 7 @2.104s 3%: 0.05+9.1+0.03 ms clock, 0.1+2.5/9.0/0+0.06 ms cpu, 61->66->34 MB, 63 MB goal, 1 MB stacks, 0 MB globals, 2 P\n" +
		"gc 8 @2.204s 3%: 0.05+9.1+0.03 ms clock, 0.1+2.5/9.0/0+0.06 ms cpu, 900->1066->321 MB, 63 MB goal, 1 MB stacks, 0 MB globals, 2 P (forced)\n" +
		"gc away\nlast\n"
	for _, piece := range []int{1, 7, len(text)} {
		var rest strings.Builder
		c := collections{rest: &rest}
		began := time.Now()
		for part := range slices.Chunk([]byte(text), piece) {
			if n, err := c.Write(part); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if want := "level=WARN msg=\"gc 1, 2->3 MB\"\ngc away\nlast\n"; rest.String() != want {
			t.Errorf("handed on %q", rest.String())
		}
		if got := c.between(began, time.Now().Add(time.Second)); !slices.Equal(got, []int64{34 << 20, 321 << 20}) {
			t.Errorf("collections left %v", got)
		}
		if got := c.between(began.Add(-time.Second), began); len(got) > 0 {
			t.Errorf("before: %v", got)
		}
	}
}
