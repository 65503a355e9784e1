package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// traced makes the Go runtime report each garbage collection on standard error,
// which costs nothing.
const traced = "GODEBUG=gctrace=1"

// collections takes what the runtime reports on garbage collections out of what a
// process writes, and hands on the rest.
type collections struct {
	rest io.Writer

	mu      sync.Mutex
	partial []byte // a line that is not complete
	all     []collection
}

// collection is one garbage collection.
type collection struct {
	at   time.Time // when it was told
	live int64     // what it left, bytes, rounded to MiB
}

// Write implements io.Writer.
func (c *collections) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, b...)
	for {
		line, rest, whole := bytes.Cut(c.partial, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if live, ok := parseCollection(string(line)); ok {
			c.all = append(c.all, collection{time.Now(), live})
		} else if _, err := fmt.Fprintf(c.rest, "%s\n", line); err != nil {
			return 0, err
		}
		c.partial = rest
	}
}

// parseCollection reads what a collection left from a line as
//
//	gc 7 @2.104s 3%: 0.05+9.1+0.03 ms clock, 0.1+2.5/9.0/0+0.06 ms cpu, 61->66->34 MB, 63 MB goal, 1 MB stacks, 0 MB globals, 2 P
//
// whose MB are MiB.
func parseCollection(line string) (live int64, ok bool) {
	if !strings.HasPrefix(line, "gc ") {
		return 0, false
	}
	for part := range strings.SplitSeq(line, ", ") {
		sizes := strings.Split(strings.TrimSuffix(part, " MB"), "->")
		if len(sizes) != 3 {
			continue
		}
		n, err := strconv.ParseInt(sizes[2], 10, 64)
		return n << 20, err == nil
	}
	return 0, false
}

// between returns what each collection between two times left, bytes, the least
// first.
func (c *collections) between(from, to time.Time) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []int64
	for _, x := range c.all {
		if !x.at.Before(from) && x.at.Before(to) {
			out = append(out, x.live)
		}
	}
	slices.Sort(out)
	return out
}
