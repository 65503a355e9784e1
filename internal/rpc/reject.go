package rpc

// RejectCode is why a part of a report was left out, as a metric label.
type RejectCode string

// Reasons that several kinds of report share.
const (
	RejectName     RejectCode = "name"     // no or an overlong name
	RejectInterval RejectCode = "interval" // negative or absurd
	RejectCounter  RejectCode = "counter"  // more than a client can count
	RejectMetric   RejectCode = "metric"   // NaN, infinite, negative or absurd
	RejectLocality RejectCode = "locality" // overlong, or an impossible priority
	RejectSize     RejectCode = "size"     // a list beyond its bound
)
