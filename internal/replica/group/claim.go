package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	// BlockSize is how many versions one claim grants, and how far its first
	// version lies above every version that an earlier leader may have published.
	BlockSize = 1_000_000
	// MaxVersion bounds versions and epochs that are accepted from outside, so that
	// adding to them can't overflow.
	MaxVersion = 1 << 62
	// MaxName bounds the name of a replica, in bytes.
	MaxName = 253
	// MaxClaimBytes bounds an encoded claim.
	MaxClaimBytes = 4096

	claimFormat = 1
)

// ErrNewerFormat reports a claim that a newer program wrote.
var ErrNewerFormat = errors.New("written by a newer version")

// Identity names one run of one replica. A replica that restarts has the same
// name and another incarnation, so that it can't take up a leadership which its
// earlier process held.
type Identity struct {
	Name        string `json:"name"`
	Incarnation uint64 `json:"incarnation"`
}

func (i Identity) String() string { return fmt.Sprintf("%s/%x", i.Name, i.Incarnation) }

func (i Identity) validate() error {
	switch {
	case i.Name == "":
		return errors.New("the replica's name is empty")
	case len(i.Name) > MaxName:
		return fmt.Errorf("the replica's name has %d bytes, at most %d are allowed", len(i.Name), MaxName)
	case !utf8.ValidString(i.Name):
		return errors.New("the replica's name is not valid UTF-8")
	}
	return nil
}

// Claim is the right to publish the versions First to Last in an epoch. The
// engine keeps the newest claim of the group. The zero value is no claim.
type Claim struct {
	Epoch  uint64   `json:"epoch"`
	Leader Identity `json:"leader"`
	First  uint64   `json:"first_version"`
}

// IsZero reports whether no replica ever claimed.
func (c Claim) IsZero() bool { return c == Claim{} }

// Last is the highest version of the claim's block.
func (c Claim) Last() uint64 { return c.First + BlockSize - 1 }

// Contains reports whether the version belongs to the claim's block.
func (c Claim) Contains(version uint64) bool {
	return !c.IsZero() && c.First <= version && version <= c.Last()
}

// Claimable reports whether a version may be in the block of a claim: others belong to
// another control plane, or to a server without a group.
func Claimable(version uint64) bool { return version > BlockSize && version <= MaxVersion }

// Validate returns an error if a claim from the engine or another replica is invalid.
func (c Claim) Validate() error {
	if c.IsZero() {
		return nil
	}
	if err := c.Leader.validate(); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if c.Epoch == 0 || c.Epoch > MaxVersion {
		return fmt.Errorf("claim of %s: epoch %d is out of range", c.Leader, c.Epoch)
	}
	if c.First <= BlockSize || c.First > MaxVersion {
		return fmt.Errorf("claim of %s: first version %d is out of range", c.Leader, c.First)
	}
	return nil
}

func (c Claim) String() string {
	if c.IsZero() {
		return "no claim"
	}
	return fmt.Sprintf("epoch %d of %s, versions %d to %d", c.Epoch, c.Leader, c.First, c.Last())
}

// encodedClaim is the form of a claim in engines. Format increases with changes that an older
// program would misread.
type encodedClaim struct {
	Claim

	Format int `json:"format"`
}

// Encode returns the claim as engines keep it.
func (c Claim) Encode() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(encodedClaim{Claim: c, Format: claimFormat})
}

// DecodeClaim decodes the result of Encode. Empty data is the zero claim.
func DecodeClaim(data []byte) (Claim, error) {
	if len(data) == 0 {
		return Claim{}, nil
	}
	if len(data) > MaxClaimBytes {
		return Claim{}, fmt.Errorf("claim: %d bytes, at most %d are allowed", len(data), MaxClaimBytes)
	}
	var e encodedClaim
	if err := json.Unmarshal(data, &e); err != nil {
		return Claim{}, fmt.Errorf("claim: %w", err)
	}
	if e.Format > claimFormat {
		return Claim{}, fmt.Errorf("claim: format %d, this program reads up to %d: %w", e.Format, claimFormat, ErrNewerFormat)
	}
	if e.Format < 1 {
		return Claim{}, fmt.Errorf("claim: format %d is out of range", e.Format)
	}
	if e.IsZero() {
		return Claim{}, errors.New("claim: it is empty")
	}
	return e.Claim, e.Validate()
}

// Known is the highest epoch and version that a replica knows to be in use: from
// the engine, its disk and the replicas that it has heard.
type Known struct {
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"` // the first of a block, or one that was published
}

// with adds a claim to the known ones.
func (k Known) with(c Claim) Known {
	return Known{Epoch: max(k.Epoch, c.Epoch), Version: max(k.Version, c.First)}
}

// next makes the claim that follows everything known.
func (k Known) next(leader Identity) (Claim, error) {
	c := Claim{Epoch: k.Epoch + 1, Leader: leader, First: k.Version + BlockSize + 1}
	if err := c.Validate(); err != nil {
		return Claim{}, fmt.Errorf("no claim can follow epoch %d and version %d: %w", k.Epoch, k.Version, err)
	}
	return c, nil
}
