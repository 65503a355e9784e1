package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const printed = `isobar demo   starting backends, clients and the server ...
plain failover the console: http://127.0.0.1:43349/ui/
plain failover   1s  warm-up                            us-east/a  28%  us-east/b  20%  mean 9.1 ms  p99 21 ms  failed 0
plain failover   4s  step: us-east/a at 520 requests/s  us-east/a 119%  us-east/b  21%  mean 665 ms  p99 1998 ms  failed 40
Isobar         the console: http://127.0.0.1:45141/ui/
Isobar           1s  warm-up                            us-east/a  19%  us-east/b  13%  mean 8.3 ms  p99 9.5 ms  failed 0
Isobar           4s  step: us-east/a at 520 requests/s  us-east/a  90%  us-east/b  71%  mean 21 ms  p99 60 ms  failed 2
`

func TestReadsTheOutputOfADemo(t *testing.T) {
	t.Parallel()
	runs, err := read(printed)
	if err != nil {
		t.Fatal(err)
	}
	want := frame{at: 4, phase: "step: us-east/a at 520 requests/s", p99: 60, failed: 2}
	if len(runs) != 2 || runs[0].title != "plain failover" || len(runs[0].frames) != 2 || runs[1].frames[1] != want {
		t.Errorf("runs %+v, want %+v last", runs, want)
	}
	first, _, _ := strings.Cut(printed, "Isobar  ")
	if _, err := read(first); err == nil {
		t.Error("one run is enough for a picture")
	}
}

func TestDrawsBothRuns(t *testing.T) {
	t.Parallel()
	runs, err := read(printed)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(draw(runs))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if want := 4; lines != want { // two runs in two panels
		t.Errorf("%d lines, want %d", lines, want)
	}
}
