package load

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// Saved is the demand remembered from the plan of an earlier process.
type Saved struct {
	Service string
	Source  isobar.Locality
	Rate    float64 // requests/s
}

// Settings of a Table.
type Settings struct {
	Interval time.Duration // the report interval asked for
}
