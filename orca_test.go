package isobar_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
)

func TestORCAJSON(t *testing.T) {
	for text, want := range map[string]isobar.ORCA{
		`false`: {}, `true`: {On: true}, `{"out_of_band":"10s"}`: {On: true, OutOfBand: 10 * time.Second},
	} {
		var got isobar.ORCA
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if back, err := json.Marshal(want); err != nil || string(back) != text {
			t.Errorf("%+v: %s, %v", want, back, err)
		}
	}
	for _, text := range []string{`"yes"`, `1`, `[]`, `{"out_of_band":3}`} {
		if err := json.Unmarshal([]byte(text), new(isobar.ORCA)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
