package abuse

// Headers are the fields that the broker reads, of requests and of what programs behind
// ports answer.
func Headers() Kind {
	return Kind{"Headers", "Fields of requests, and of the answers of programs behind ports.", []Line{
		{
			Of:    []string{"Authorization", "X-API-Key"},
			Abuse: "Anybody, to guess a token; who stands behind a proxy, by two tokens of which the proxy sees the other.",
			Stops: "Sums are compared in constant time. Tokens that differ are none.",
			Tests: []string{"TestAuthentication", "TestARepeatedTokenHeaderMustNotDiffer", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"X-Sandbox-Token", "OPEN-SANDBOX-API-KEY"},
			Abuse: "Anybody, to guess a token at a front door, or to have a path, a header and a configured tenant disagree about who asks.",
			Stops: "They are tokens of tenants, found as any other. Those that differ are none, and the tenant of who gives none is the operator's choice.",
			Tests: []string{"TestRAGFlowInGVisor", "TestStrangersAndNonsense"},
		},
		{
			Of:    []string{"X-EXECD-ACCESS-TOKEN", "OPENSANDBOX-EGRESS-AUTH"},
			Abuse: "Who has had the token of one sandbox, for another or for longer; a program in the sandbox, to see it.",
			Stops: "A token follows from the ID of one sandbox and a key that only the broker has, ends with the sandbox, and is taken off what programs see.",
			Tests: []string{"TestStrangersAndNonsense", "TestCredentialsOfAnAPIAreKeptFromTheProgram"},
		},
		{
			Of:    []string{"X-Access-Token", "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port"},
			Abuse: "Who has had the token of one sandbox, for another, for another purpose or for longer; anybody, to have a host and a field, or two fields, name two sandboxes or ports; a program in the sandbox, to see a token.",
			Stops: "Tokens follow from the ID of one sandbox, a purpose and a key that only the broker has, end with the sandbox, and are taken off what programs see. Hosts and fields that disagree are refused.",
			Tests: []string{"TestWhoMayAskWhat", "TestTokensAreOfOneSandboxAndOnePurpose", "TestPortsThatTakeAToken", "TestHostsThatLeadNowhere"},
		},
		{
			Of:    []string{"Traceparent"},
			Abuse: "Anybody, to have traces sent, or to mix them up with another's; a tenant, to have all of its own sent.",
			Stops: "It is read only with a valid token and with a tracing block, and its flag only where the block says so. Its IDs join traces and open nothing; whoever gives another's ID is seen in that trace.",
			Tests: []string{"TestATraceGoesFromTheRequestToThePlugin", "TestCallersCannotHaveMoreSentThanTheRatio", "TestAStrangersTraceIsNotRead"},
		},
		{
			Of:    []string{"Last-Event-ID"},
			Abuse: "A tenant, to read on in another execution, another's or one that had the name before.",
			Stops: "The execution is found by the path and the token; the ID must be of it, and is bounded and checked.",
			Tests: []string{"TestAnIDIsForOneExecutionAtATime", "TestWhoseItIs"},
		},
		{
			Of:    []string{"Mcp-Session-Id", "Mcp-Protocol-Version"},
			Abuse: "Anybody, to pass for another by the ID of a session, or to cancel another's call.",
			Stops: "The ID opens nothing: each request has its token. Calls in progress are looked for among those of the same tenant and session alone.",
			Tests: []string{"TestOldClientsCancelByAnotherRequest", "TestAllVersionsOfTheProtocol"},
		},
		{
			Of:    []string{"Keepalive-Ping-Interval", "Connect-Timeout-Ms"},
			Abuse: "A client, for signs of life without a pause, or for a stream without an end.",
			Stops: "There is a second at least between two, and no stream outlives its sandbox, with a time limit or without.",
			Tests: []string{"TestHowLongAStreamIsSilent", "TestAStreamThatIsSilentGivesSignsOfLife", "TestAProcessGoesOnWithoutItsClient"},
		},
		{
			Of:    []string{"X-EXECD-OPERATION-ID"},
			Abuse: "Who has the token of one sandbox, to learn of another's operations, or to have more of them kept than there is room for.",
			Stops: "A name holds the sandbox that it is for, and is looked for among those of its tenant and sandbox alone, which are bounded together.",
			Tests: []string{"TestAnOperationIsOfOneSandbox", "TestASandboxHasRoomForSoManyOperations", "TestTheNameOfAnOperation"},
		},
		{
			Of:    []string{"Sec-WebSocket-Protocol"},
			Abuse: "The program behind a port, for the token that a browser can only offer there.",
			Stops: "What begins with `bearer.` or the broker's name never reaches a program, nor comes from one.",
			Tests: []string{"TestTheBrokersSubprotocolsStayWithIt", "TestTokensStayWithTheBroker", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"Content-Length", "Transfer-Encoding", "Host", "Expect", "Trailer"},
			Abuse: "A client, to have its bytes taken for the request of another that shares the proxy's connection.",
			Stops: "What could be read in two ways is refused, and the connection closed.",
			Tests: []string{"TestABodyHasOneLength", "TestOneRequestForAProxyIsOneForTheBroker", "TestALineThatNamesAnotherHostIsRefused", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"X-Sandbox-Broker-Held"},
			Abuse: "A client, to pass for a request that the broker has marked itself.",
			Stops: "The mark holds a word that only this process knows, and one from outside is removed.",
			Tests: []string{"TestHeadOfAStream"},
		},
		{
			Of:    []string{"X-Broker-Hop"},
			Abuse: "A client, to have another address in the audit log, another scheme in links, or its call passed on no further.",
			Stops: "It is read on the listener of the peers alone. What a client says there is replaced when its call is passed on, and taken off what programs see.",
			Tests: []string{"TestWhatAClientSaysOfAHopIsNotBelieved", "TestAProgramIsReachedThroughAnotherBroker"},
		},
		{
			Of:    []string{"Upgrade", "Origin", "Sec-Fetch-Site", "Access-Control-Request-Method"},
			Abuse: "A page of another origin, to open a WebSocket, to ask with what a browser adds, or to run code at a door without tokens.",
			Stops: "A handshake of another origin is refused. No cookie is a token, so a page has nothing to ask with; a door without tokens refuses pages. Preflights are answered for links alone.",
			Tests: []string{"TestTerminalsOverWebSocket", "TestNoPageRunsCodeWithoutAToken", "TestAPreflightIsAnsweredInPlaceOfTheProgram", "TestTheRequestsOfAttackers", "TestWhoIsLetIn"},
		},
		{
			Of:    []string{"Cookie", "Set-Cookie"},
			Abuse: "A program, for cookies of other programs at the same host, or to set some for them.",
			Stops: "By a link, names get a prefix and paths are those of the link. The broker's own never pass.",
			Tests: []string{"TestCookiesStayWithTheProgram"},
		},
		{
			Of:    []string{"Referer", "X-Real-IP", "Proxy-Authorization"},
			Abuse: "A client, to tell a program that it is another; a program, for what a proxy was told.",
			Stops: "They are removed, or made what the program's own page would send; the broker believes none of them.",
			Tests: []string{"TestWhatTheProgramSees", "TestAPreviewWithAHostOfItsOwn"},
		},
		{
			Of:    []string{"Location", "Content-Location", "Cache-Control"},
			Abuse: "A program, to lead a client to routes of the broker, or to have a shared cache keep what is one tenant's.",
			Stops: "What points at the program's root leads below its port; no shared cache may keep anything.",
			Tests: []string{"TestRedirectsLeadBackToTheProgram", "TestASharedCacheKeepsNothing"},
		},
		{
			Of:    []string{"Content-Type", "Content-Encoding", "Content-Disposition"},
			Abuse: "A client, by bombs, forms where none are taken, names that lead elsewhere.",
			Stops: "Bodies are JSON and not compressed, but for archives and uploads, which are bounded as they are unpacked. Names in forms are file names and nothing else.",
			Tests: []string{"TestAFormIsNotParsed", "TestABombIsNoArchive", "TestFilenamesOfForms", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"Idempotency-Key"},
			Abuse: "A client, to have another's answer by its key, to use a key for something else, to keep memory; who reads the state, for secrets in answers.",
			Stops: "Keys are those of one tenant, one route and one body. Large answers are not kept, and secrets never are.",
			Tests: []string{"TestAKeyGoesWithOneRequest", "TestAKeyThatCannotBe", "TestASecretIsNotKeptForItsKey", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"X-Request-Id"},
			Abuse: "A client, to forge lines of the log, or to pass for another request.",
			Stops: "64 letters, digits, `_` and `-`; anything else is replaced.",
			Tests: []string{"TestRequestIDs", "TestWhatTenantsWriteCannotForgeALine"},
		},
		{
			Of:    []string{"Accept"},
			Abuse: "A client, to have an answer written that another part of it does not expect.",
			Stops: "It chooses between JSON and a stream of events, nothing else.",
			Tests: []string{"TestTheFormIsNegotiated"},
		},
		{
			Of:    []string{"Range", "If-Range", "Content-Range", "If-None-Match", "If-Match"},
			Abuse: "A client, for many parts of a file at once, to write a part over a whole, to change what it has not seen.",
			Stops: "One range or the whole; a body with `Content-Range` is refused; a tag that does not fit is a conflict.",
			Tests: []string{"TestARangeIsOneOrAll", "TestAPartOfAFileIsRead", "TestAChangeIsMadeToTheRevisionThatWasSeen"},
		},
	}}
}
