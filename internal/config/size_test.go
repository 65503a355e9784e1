package config_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestSizeOfAnAssignment: the warning comes where clients begin to refuse what
// is really sent.
func TestSizeOfAnAssignment(t *testing.T) {
	plain := func(address string) (string, isobar.WeightedEndpoint) {
		return strconv.Quote(address), isobar.WeightedEndpoint{Address: address}
	}
	detailed := func(address string) (string, isobar.WeightedEndpoint) {
		other := strings.Replace(address, ":80", ":81", 1)
		d := isobar.EndpointDetails{
			Hostname: "checkout-123.us-east-b.internal.example", AdditionalAddresses: []string{other},
			Metadata: `{"envoy.lb":{"canary":true,"shard":17,"stage":"production","version":"2026.11.20-4711"}}`,
		}
		return fmt.Sprintf("{address: %q, hostname: %s, additional_addresses: [%q], metadata: %s}", address, d.Hostname, other, d.Metadata),
			isobar.WeightedEndpoint{Address: address, Config: &isobar.Endpoint{Details: &d}}
	}
	for _, tt := range []struct {
		endpoints int
		of        func(address string) (string, isobar.WeightedEndpoint)
		warned    bool
	}{{62_000, plain, false}, {74_000, plain, true}, {14_500, detailed, false}, {18_500, detailed, true}} {
		warnedOfSize(t, tt.endpoints, tt.of, tt.warned)
	}
}

func warnedOfSize(t *testing.T, endpoints int, of func(address string) (string, isobar.WeightedEndpoint), want bool) {
	t.Helper()
	const most = 4 << 20
	var b strings.Builder
	b.WriteString("services:\n- name: big\n  localities:\n  - locality: a/a\n    endpoints:\n")
	group := &isobar.EndpointGroup{Locality: isobar.MustLocality("a/a")}
	for i := range endpoints {
		text, e := of(fmt.Sprintf("[2001:db8:1111:2222:3333:4444:%x:%x]:8080", 0x1000+i>>12, 0x1000+i&0xfff))
		b.WriteString("    - " + text + "\n")
		e.Weight, e.Health = 1000, isobar.Healthy
		group.Endpoints = append(group.Endpoints, e)
	}
	_, warnings, err := config.Decode("f", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("f:4:3: warning: services[0].localities: %d endpoints take about 4.", endpoints)
	if warned := slices.ContainsFunc(warnings, func(p config.Problem) bool { return strings.HasPrefix(p.String(), says) }); warned != want {
		t.Errorf("%d endpoints: warnings %v", endpoints, warnings)
	}
	sent, err := resource.Assignment(&isobar.Assignment{
		Service: "big", OverprovisioningFactor: 140,
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group, Weight: isobar.WeightScale}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if size := proto.Size(sent); (size > most) != want {
		t.Errorf("%d endpoints take %d bytes, warned is %v", endpoints, size, want)
	}
}
