package isobar

import (
	"encoding/json"
	"fmt"
	"time"
)

// Bounds of ORCA.OutOfBand.
const (
	MinORCAPeriod = time.Second
	MaxORCAPeriod = time.Hour
)

// ORCA says whether endpoints report their utilization, and how clients that weigh
// them by it hear of it. In JSON it is true, or an object such as
// {"out_of_band": "10s"}.
type ORCA struct {
	On bool
	// OutOfBand is how often an endpoint reports on a stream of its own
	// (xds.service.orca.v3.OpenRcaService); 0 = with each answer. What comes out of
	// band weighs endpoints, and is in no load report.
	OutOfBand time.Duration
}

// orcaJSON is the object that ORCA is in JSON where it has settings.
type orcaJSON struct {
	OutOfBand durationJSON `json:"out_of_band"`
}

// MarshalJSON writes true or false, or an object where there are settings.
func (o ORCA) MarshalJSON() ([]byte, error) {
	if o.On && o.OutOfBand > 0 {
		return json.Marshal(orcaJSON{durationJSON(o.OutOfBand)})
	}
	return json.Marshal(o.On)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *ORCA) UnmarshalJSON(b []byte) error {
	var on bool
	if err := json.Unmarshal(b, &on); err == nil {
		*o = ORCA{On: on}
		return nil
	}
	var settings orcaJSON
	if err := json.Unmarshal(b, &settings); err != nil {
		return fmt.Errorf("orca: want true, false or an object such as {\"out_of_band\": \"10s\"}: %w", err)
	}
	*o = ORCA{On: true, OutOfBand: time.Duration(settings.OutOfBand)}
	return nil
}
