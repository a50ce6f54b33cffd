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
		{Group: group, Name: "files that match a pattern come back", run: artifactsByPattern},
		{Group: group, Name: "a pattern reaches into directories", run: artifactsInDirectories},
		{Group: group, Name: "a pattern that matches nothing is no failure", run: artifactsUnmatched},
		{Group: group, Name: "nobody asked, and nothing comes", run: artifactsOnRequest},
		{Group: group, Name: "what an earlier execution wrote does not come again", run: artifactsOfThisExecution},
		{Group: group, Name: "an artifact that is too large comes without its data", run: artifactTooLarge},
		{Group: group, Name: "more artifacts than allowed are told of", run: artifactsTooMany},
		{Group: group, Name: "a file that is not there is no failure", run: artifactAbsent},
		{Group: group, Name: "the directory is there before the code", run: artifactsAreThere},
		{Group: group, Name: "the directory is there again after code has removed it", run: artifactsAreThereAgain},
		{Group: group, Name: "the directory takes the place of no file", run: artifactsReplaceNothing},
	}), sdk.CapabilityArtifacts)
}

// generous are limits that nothing here exceeds.
func generous(files ...string) *sdk.ArtifactLimits {
	return &sdk.ArtifactLimits{Files: files, MaxCount: 20, MaxBytes: 1 << 20, MaxTotalBytes: 4 << 20}
}

// produces runs a sample and returns the artifacts that are files.
func (in instance) produces(sample string, limits *sdk.ArtifactLimits) []sdk.Artifact {
	req := in.request(in.code(sample))
	req.Artifacts = limits
	got := in.execute(req)
	got.succeeded()
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
	c.oneFile(c.instance().produces(c.samples.Figure, generous()), "artifacts/figure.txt", "drawn")
}

// "Files to return, relative to /workspace" (ArtifactLimits)
func artifactIsAskedFor(c *scene) {
	c.oneFile(c.instance().produces(c.samples.Write, generous("providertest.txt")), "providertest.txt", "kept")
}

// named are the contents of files among artifacts, by their names.
func (c *scene) named(files []sdk.Artifact) map[string]string {
	contents := map[string]string{}
	for _, f := range files {
		c.check(f.Refused == "", "the file %s has no data: %s", f.Name, f.Refused)
		contents[f.Name] = string(f.Data)
	}
	equal(c, len(contents), len(files), "the number of different names among %s", shown(files))
	return contents
}

// "or patterns: * and ? stand for a part of a name" (ArtifactLimits)
func artifactsByPattern(c *scene) {
	got := c.named(c.instance().produces(c.samples.WriteTree, generous("*.txt", "tree/?.md")))
	equal(c, got, map[string]string{"b.txt": "b.txt", "tree/a.md": "tree/a.md"}, "the files for the patterns *.txt and tree/?.md")
}

// "and ** for any number of directories" (ArtifactLimits)
func artifactsInDirectories(c *scene) {
	got := c.named(c.instance().produces(c.samples.WriteTree, generous("**/b.txt")))
	equal(c, got, map[string]string{"b.txt": "b.txt", "tree/b.txt": "tree/b.txt", "tree/deep/b.txt": "tree/deep/b.txt"}, "the files for the pattern **/b.txt")
}

// "A name or pattern for which there is no file comes as an artifact without data, which
// says so." (ArtifactLimits)
func artifactsUnmatched(c *scene) {
	files := c.instance().produces(c.samples.WriteTree, generous("*.none"))
	c.check(len(files) == 1, "there are %d files among the artifacts; there must be one: %s", len(files), shown(files))
	c.check(len(files[0].Data) == 0 && files[0].Refused != "", "a pattern that matches nothing has data, or does not say why there is none: %s", shown(files[0]))
}

// "It is nil … where nobody wants any." (ExecuteRequest.Artifacts)
func artifactsOnRequest(c *scene) {
	c.check(len(c.instance().produces(c.samples.Figure, nil)) == 0, "artifacts came that nobody asked for")
}

// "that the execution writes": this one. (ArtifactLimits)
func artifactsOfThisExecution(c *scene) {
	in := c.instance()
	in.produces(c.samples.Figure, generous())
	files := in.produces(c.samples.Hello, generous())
	c.check(len(files) == 0, "files of an earlier execution are among the artifacts: %s", shown(files))
}

// "MaxBytes bounds the data of one artifact. A larger file comes without data."
// (ArtifactLimits)
func artifactTooLarge(c *scene) {
	limits := generous()
	limits.MaxBytes = 2
	files := c.instance().produces(c.samples.Figure, limits)
	c.check(len(files) == 1, "there are %d files among the artifacts; there must be one", len(files))
	equal(c, len(files[0].Data), 0, "the data of a file that is too large")
	equal(c, files[0].Size, int64(len("drawn")), "the size of a file that is too large")
	c.check(files[0].Refused != "", "the artifact does not say why there is no data")
}

// "What exceeds it is told with one more, which has no data and says so in
// Refused." (ArtifactLimits.MaxCount)
func artifactsTooMany(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	limits := generous("providertest.txt")
	limits.MaxCount = 1
	req := in.request(c.code(c.samples.Figure))
	req.Artifacts = limits
	got := c.execute(req)
	got.succeeded()
	c.check(len(got.artifacts) == 2, "there are %d artifacts; there must be one and one more: %s", len(got.artifacts), shown(got.artifacts))
	c.check(len(got.artifacts[1].Data) == 0 && got.artifacts[1].Refused != "", "the one more has data or does not say why there is none: %s", shown(got.artifacts[1]))
}

// A file that the code did not write is the code's affair.
func artifactAbsent(c *scene) {
	files := c.instance().produces(c.samples.Hello, generous("no-such-file.txt"))
	for _, f := range files {
		c.check(len(f.Data) == 0, "a file that is not there has data: %s", shown(f))
	}
}

// "Before each execution a provider of artifacts makes /workspace/artifacts"
// (ArtifactLimits)
func artifactsAreThere(c *scene) {
	c.oneFile(c.instance().produces(c.samples.FigureAtOnce, generous()), "artifacts/figure.txt", "drawn")
}

// The same: each. What is empty gives no artifact.
func artifactsAreThereAgain(c *scene) {
	in := c.instance()
	for _, sample := range []string{c.samples.RemoveArtifacts, c.samples.Silent} {
		files := in.produces(sample, generous())
		c.check(len(files) == 0, "there is a file among the artifacts of code that writes none: %s", shown(files))
	}
	in.run(c.samples.RemoveArtifacts).succeeded()
	c.oneFile(in.produces(c.samples.FigureAtOnce, generous()), "artifacts/figure.txt", "drawn")
}

// "unless something else has that name" (ArtifactLimits)
func artifactsReplaceNothing(c *scene) {
	in := c.instance()
	in.run(c.code(c.samples.ReplaceArtifacts)).succeeded()
	c.oneFile(in.produces(c.samples.Silent, generous("artifacts")), "artifacts", "kept")
}
