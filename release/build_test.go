package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

const help = `Name what does not fit. It reads
the cluster.

Usage:
  isobar kubernetes [command]

Run it:
  analyze     Name what does not fit
              in files

Additional Commands:
  help        Help about any command

Flags:
  -h, --help   help for kubernetes
`

func TestCommandsOfHelp(t *testing.T) {
	if got := commandsOf(help); !slices.Equal(got, []string{"analyze", "help"}) {
		t.Errorf("commands %q", got)
	}
}

func TestManual(t *testing.T) {
	got := string(manual("isobar-kubernetes", help, &release{version: "v1.2.3", date: time.Unix(0, 0).UTC()}))
	for _, want := range []string{
		".TH ISOBAR-KUBERNETES 1 \"1970-01-01\" \"isobar 1.2.3\"", "isobar-kubernetes \\- Name what does not fit\n", ".SH RUN IT\n", "\n  \\-h, \\-\\-help   help",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Count(got, ".nf\n") != strings.Count(got, ".fi\n") {
		t.Errorf("lines that are kept do not end:\n%s", got)
	}
}

// TestPack: an archive has directories before what is in them, and depends on its entries
// alone.
func TestPack(t *testing.T) {
	at := time.Unix(1_000_000_000, 0)
	entries := []entry{{name: "b/c/file", mode: 0o644, data: []byte("x")}, {name: "a", mode: 0o700, uid: 7}, {name: "b/empty", mode: 0o600, data: []byte{}}}
	first, err := pack(entries, at)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(entries)
	second, err := pack(entries, at)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("another order gives another archive: %v", err)
	}
	small, err := zipped(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := unpack(small)
	if err != nil || len(files) != 5 || files["a"].uid != 7 || files["a"].data != nil || string(files["b/c/file"].data) != "x" || files["b/empty"].data == nil {
		t.Errorf("%+v, %v", files, err)
	}
}
