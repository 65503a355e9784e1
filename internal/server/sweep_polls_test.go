package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestSweepOfPolls does to the bodies of polls over HTTP what TestSweepOfFields
// does to messages, and puts values of the wrong kind in every place.
func TestSweepOfPolls(t *testing.T) {
	var table bytes.Buffer
	for _, x := range []struct {
		path string
		full proto.Message
	}{
		{"/v3/discovery:endpoints", fullRequest(resource.EndpointsURL)},
		{rpc.CheckerPath, fullHello()},
		{rpc.CheckerPath, fullHealth()},
	} {
		inSweep(t, func(w *sweepWorld) {
			out, id := tally{}, w.enterChecker()
			poll := func(body []byte, m mutation) {
				if x.path == rpc.CheckerPath {
					<-time.After(time.Second) // a checker that polls has a pace
				}
				code, text := w.poll(x.path, id, body)
				switch code {
				case http.StatusOK, http.StatusNotModified:
				case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
					if len(text) < 10 || len(text) > 1000 {
						t.Errorf("%s, %s %s: %d with %.2000q", x.path, m.path, m.what, code, text)
					}
				default:
					t.Errorf("%s, %s %s: %d %.200q", x.path, m.path, m.what, code, text)
				}
				out.add(http.StatusText(code), m)
			}
			for _, m := range mutations(x.full) {
				message := proto.CloneOf(x.full).ProtoReflect()
				m.apply(message)
				body, err := protojson.Marshal(message.Interface())
				if err != nil {
					continue // what JSON can't say
				}
				poll(spoil(body), m)
			}
			w.alive("after wrong fields")
			spaced, err := protojson.Marshal(x.full)
			if err != nil {
				t.Fatal(err)
			}
			all := decodeJSON(t, spaced)
			full, err := json.Marshal(all) // protojson puts blanks in at random
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range jsonMutations(all) {
				body, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				poll(body, mutation{path: "any", what: "of the wrong kind"})
			}
			for _, body := range brokenJSON(full) {
				poll(body, mutation{path: "document", what: "broken"})
			}
			out.count(&table, fmt.Sprintf("%s, %s", x.path, x.full.ProtoReflect().Descriptor().Name()))
		})
	}
	golden(t, "sweep_polls.golden", table.Bytes())
}

// brokenJSON is what is no document, or one that is hard to read.
func brokenJSON(full []byte) [][]byte {
	out := [][]byte{
		nil, []byte("null"), []byte("[]"), []byte(`"x"`), []byte("{"), []byte("{}{}"), []byte("\xff\xfe"), []byte(`{"node":{"node":{}}}`),
		bytes.Repeat([]byte("["), 1_000_000), bytes.Repeat([]byte(`{"a":`), 500_000), []byte(`{"version_info":1e999999999}`),
		bytes.Repeat([]byte(" "), 5<<20), append([]byte(`{"version_info":"1","version_info":"2",`), full[1:]...),
	}
	for i := 0; i < len(full); i += 1 + len(full)/50 {
		out = append(out, full[:i])
	}
	return out
}

// enterChecker has a checker enter that polls, and gives what it says who it is
// with.
func (w *sweepWorld) enterChecker() string {
	w.t.Helper()
	hello, err := protojson.Marshal(fullHello())
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.post(rpc.CheckerPath, "", hello)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("a checker's first poll: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	return resp.Header.Get(hds.CheckerHeader)
}

func (w *sweepWorld) post(path, id string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://isobar"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if id != "" {
		r.Header.Set(hds.CheckerHeader, id)
	}
	return w.polls.Do(r)
}

// poll posts a body and gives what comes back.
func (w *sweepWorld) poll(path, id string, body []byte) (code int, text string) {
	w.t.Helper()
	resp, err := w.post(path, id, body)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}
