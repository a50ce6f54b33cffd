package providertest

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func artifactCases(languages []sdk.Language) []Case {
	const group = "artifacts"
	return needing(inLanguages(languages, []Case{
		{Group: group, Name: "what is written below artifacts comes back", run: artifactIsFound},
		{Group: group, Name: "a file that was asked for comes back", run: artifactIsAskedFor},
		{Group: group, Name: "nobody asked, and nothing comes", run: artifactsOnRequest},
		{Group: group, Name: "what an earlier execution wrote does not come again", run: artifactsOfThisExecution},
		{Group: group, Name: "an artifact that is too large comes without its data", run: artifactTooLarge},
		{Group: group, Name: "more artifacts than allowed are told of", run: artifactsTooMany},
		{Group: group, Name: "a file that is not there is no failure", run: artifactAbsent},
	}), sdk.CapabilityArtifacts)
}

// generous are limits that nothing here exceeds.
func generous(files ...string) *sdk.ArtifactLimits {
	return &sdk.ArtifactLimits{Files: files, MaxCount: 20, MaxBytes: 1 << 20, MaxTotalBytes: 4 << 20}
}

// produces runs a sample and returns the artifacts that are files.
func (c *scene) produces(id, sample string, limits *sdk.ArtifactLimits) []sdk.Artifact {
	req := c.request(id, c.code(sample))
	req.Artifacts = limits
	got := c.execute(req)
	c.succeeded(got)
	return slices.DeleteFunc(got.artifacts, func(a sdk.Artifact) bool { return a.Kind != sdk.ArtifactFile })
}

func (c *scene) oneFile(files []sdk.Artifact, name, data string) {
	c.check(len(files) == 1, "there are %d files among the artifacts; there must be one: %s", len(files), shown(files))
	equal(c, files[0].Name, name, "the name of the file")
	equal(c, string(files[0].Data), data, "the data of the file")
	equal(c, files[0].Size, int64(len(data)), "the size of the file")
	c.check(files[0].MIMEType != "", "the file has no MIME type")
}

// "those that the execution writes below /workspace/artifacts" (ArtifactLimits)
func artifactIsFound(c *scene) {
	c.oneFile(c.produces(c.instance(), c.samples.Figure, generous()), "artifacts/figure.txt", "drawn")
}

// "Files to return, relative to /workspace" (ArtifactLimits)
func artifactIsAskedFor(c *scene) {
	c.oneFile(c.produces(c.instance(), c.samples.Write, generous("providertest.txt")), "providertest.txt", "kept")
}

// "It is nil … where nobody wants any." (ExecuteRequest.Artifacts)
func artifactsOnRequest(c *scene) {
	c.check(len(c.produces(c.instance(), c.samples.Figure, nil)) == 0, "artifacts came that nobody asked for")
}

// "that the execution writes": this one. (ArtifactLimits)
func artifactsOfThisExecution(c *scene) {
	id := c.instance()
	c.produces(id, c.samples.Figure, generous())
	files := c.produces(id, c.samples.Hello, generous())
	c.check(len(files) == 0, "files of an earlier execution are among the artifacts: %s", shown(files))
}

// "MaxBytes bounds the data of one artifact. A larger file comes without data."
// (ArtifactLimits)
func artifactTooLarge(c *scene) {
	limits := generous()
	limits.MaxBytes = 2
	files := c.produces(c.instance(), c.samples.Figure, limits)
	c.check(len(files) == 1, "there are %d files among the artifacts; there must be one", len(files))
	equal(c, len(files[0].Data), 0, "the data of a file that is too large")
	equal(c, files[0].Size, int64(len("drawn")), "the size of a file that is too large")
	c.check(files[0].Refused != "", "the artifact does not say why there is no data")
}

// "What exceeds it is told with one more, which has no data and says so in
// Refused." (ArtifactLimits.MaxCount)
func artifactsTooMany(c *scene) {
	id := c.instance()
	c.succeeded(c.run(id, c.samples.Write))
	limits := generous("providertest.txt")
	limits.MaxCount = 1
	req := c.request(id, c.code(c.samples.Figure))
	req.Artifacts = limits
	got := c.execute(req)
	c.succeeded(got)
	c.check(len(got.artifacts) == 2, "there are %d artifacts; there must be one and one more: %s", len(got.artifacts), shown(got.artifacts))
	c.check(len(got.artifacts[1].Data) == 0 && got.artifacts[1].Refused != "", "the one more has data or does not say why there is none: %s", shown(got.artifacts[1]))
}

// A file that the code did not write is the code's affair.
func artifactAbsent(c *scene) {
	files := c.produces(c.instance(), c.samples.Hello, generous("no-such-file.txt"))
	for _, f := range files {
		c.check(len(f.Data) == 0, "a file that is not there has data: %s", shown(f))
	}
}
