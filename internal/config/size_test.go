package config_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/wire"
)

// TestSizeOfAnAssignment: the warning comes where clients begin to refuse what
// is really sent.
func TestSizeOfAnAssignment(t *testing.T) {
	const most = 4 << 20
	for _, tt := range []struct {
		endpoints int
		warned    bool
	}{{62_000, false}, {74_000, true}} {
		var b strings.Builder
		b.WriteString("services:\n- name: big\n  localities:\n  - locality: a/a\n    endpoints:\n")
		group := &isobar.EndpointGroup{Locality: isobar.MustLocality("a/a")}
		for i := range tt.endpoints {
			address := fmt.Sprintf("[2001:db8:1111:2222:3333:4444:%x:%x]:8080", 0x1000+i>>12, 0x1000+i&0xfff)
			fmt.Fprintf(&b, "    - %q\n", address)
			group.Endpoints = append(group.Endpoints, isobar.WeightedEndpoint{Address: address, Weight: 1000, Health: isobar.Healthy})
		}
		_, warnings, err := config.Decode("f", []byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		warned := len(warnings) == 1 && strings.HasPrefix(warnings[0].String(), "f:4:3: warning: services[0].localities: 74000 endpoints take about 4.")
		if warned != tt.warned {
			t.Errorf("%d endpoints: warnings %v", tt.endpoints, warnings)
		}
		sent, err := wire.Assignment(&isobar.Assignment{
			Service: "big", OverprovisioningFactor: 140,
			Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group, Weight: isobar.WeightScale}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(sent); (size > most) != tt.warned {
			t.Errorf("%d endpoints take %d bytes, warned is %v", tt.endpoints, size, tt.warned)
		}
	}
}
