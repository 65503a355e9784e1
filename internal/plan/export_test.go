package plan

var (
	// Texts lists the sentences of troubles.
	Texts = troubleTexts
	// DegradationLevels lists the levels, from the top.
	DegradationLevels = degradationLevels
)
