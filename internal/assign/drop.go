package assign

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// Drops: one fraction for all clients of the service.
const (
	dropOff    = 0.005 // a decaying drop ends below this
	dropSteady = 0.005 // a drop stays while at most this much too high
	dropRise   = 0.001 // and this much too low
	dropEnds   = 4.0   // by which it is divided in a tick when all demand just fits
	dropFits   = 0.85  // of what the localities may carry: demand below it fits well
)

// nextDrop returns the fraction that clients drop. It follows the solver up at
// once, and falls by half in a tick. When all demand just fits, it falls to a
// quarter, so that an error of the estimates does not overload everything again.
// When all demand fits well, it ends at once: the demand counts dropped requests,
// so no more than that can come. Without a decision the fraction stays.
func nextDrop(in *Input) float64 {
	shed, most := min(1, finite(in.Shed)), min(1, finite(in.Service.MaxShed))
	if in.Service.Mode == isobar.ModeObserve {
		shed = 0 // observing must not cost anybody a request
	}
	if in.Previous == nil {
		return wireDrop(shed, most)
	}
	prev := min(finite(in.Previous.Drop), most)
	switch {
	case !in.deciding():
		return wireDrop(prev, most)
	case steadyDrop(shed, prev):
		return wireDrop(prev, most)
	case shed > prev:
		return wireDrop(shed, most)
	case shed <= 0 && (prev/dropEnds < dropOff || in.fitsWell()):
		return 0
	case shed <= 0:
		return wireDrop(prev/dropEnds, most)
	default:
		return wireDrop(max(shed, prev/2), most)
	}
}

// fitsWell reports whether the demand of all sources is well below what all
// localities together may carry.
func (in *Input) fitsWell() bool {
	demand, limit := 0.0, 0.0
	for i := range in.Sources {
		demand += finite(in.Sources[i].Demand)
	}
	for i := range in.Sites {
		if s := &in.Sites[i]; s.Usable() {
			limit += finite(s.Limit())
		}
	}
	return demand <= dropFits*limit
}

// fineDrop is the largest drop that goes out in 1/10,000: grpc-go before 1.85
// overflows above it, so that larger ones are told in whole percents.
const fineDrop = 0.4294

// wireDrop rounds up to what the wire can tell, but never above the most that
// the operator allows.
func wireDrop(drop, most float64) float64 {
	fine := min(roundUp(drop, 10_000), roundDown(most, 10_000))
	if fine <= fineDrop {
		return max(0, fine)
	}
	return max(fineDrop, min(roundUp(drop, 100), roundDown(most, 100)))
}

func roundUp(v, scale float64) float64   { return math.Ceil(v*scale-1e-6) / scale }
func roundDown(v, scale float64) float64 { return math.Floor(v*scale+1e-6) / scale }
