package convert_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestHealthMessageOfManyParts asserts that a message in JSON that would become many times its
// size in memory is refused, in each API version.
func TestHealthMessageOfManyParts(t *testing.T) {
	body := `{"endpoint_health_response": {"endpoints_health": [` + strings.Repeat(`{},`, 130_000) + `{}]}}`
	for _, api := range []rpc.APIVersion{rpc.V3, rpc.V2} {
		if _, _, err := convert.HealthMessageFromJSON([]byte(body), api); !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), "more than 250000") {
			t.Errorf("form %v: %v", api, err)
		}
	}
}

// FuzzHealthMessageJSON: whatever is posted, it is read or refused; with the
// names of 2017 a request says the same as with those of v2.
func FuzzHealthMessageJSON(f *testing.F) {
	for _, s := range []string{
		`{"health_check_request": {"node": {"id": "a"}, "capability": {"health_check_protocols": ["HTTP"]}}}`,
		`{"healthCheckRequest": {"node": {"id": "a"}, "capability": {"healthCheckProtocol": [0, "TCP"]}}}`,
		`{"node": {"id": "a"}, "capability": {"health_check_protocol": ["REDIS"]}}`,
		`{"endpoint_health_response": {"endpoints_health": [{"health_status": "HEALTHY"}]}}`,
		`{"health_check_request": {"capability": {"health_check_protocol": 7}}}`,
		`{"capability": []}`, `[]`, `null`, `{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if m, api, err := convert.HealthMessageFromJSON(body, rpc.V3); api != rpc.V3 || err != nil && (m.Request != nil || m.Response != nil) {
			t.Errorf("as v3: %v, %v, %v", m, api, err)
		}
		m, api, err := convert.HealthMessageFromJSON(body, rpc.V2)
		if api == rpc.V3 {
			t.Errorf("%s is read as %v, %v", body, api, err)
		}
		if err != nil || api == rpc.V2 {
			return
		}
		if !json.Valid(body) || m.Response != nil && m.Request != nil {
			t.Errorf("%s is read as %v", body, m)
		}
	})
}
