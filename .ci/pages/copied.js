// The code of an example without prompts and output, as Python's own prompt takes it: there an
// empty line ends a block, so that one follows each block, and none stands within.
function codeOf(text) {
    const lines = text.trimEnd().split("\n");
    const code = [];
    let isBlock = false;
    for (const line of lines) {
        const statement = line.slice(4);
        if (line.startsWith("...")) {
            isBlock = true;
            if (statement.trim() !== "") {
                code.push(statement);
            }
            continue;
        }
        if (isBlock) {
            code.push("");
        }
        isBlock = false;
        if (line.startsWith(">>>")) {
            code.push(statement);
        }
    }
    if (isBlock) {
        code.push("");
    }
    return (code.length ? code : lines).join("\n") + "\n";
}
