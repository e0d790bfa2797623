// Forms with `data-passkey` ask the browser for a passkey, new ("create") or known ("get"), and send what it gives.
for (const form of document.querySelectorAll("form[data-passkey]")) {
  const { passkey: verb, options } = form.dataset;
  const told = form.querySelector("[role=alert]");
  form.addEventListener("submit", async (event) => {
    if (form.elements.credential.value) return;
    event.preventDefault();
    told.textContent = "";
    try {
      const asked = JSON.parse(options);
      const publicKey =
        verb === "create"
          ? PublicKeyCredential.parseCreationOptionsFromJSON(asked)
          : PublicKeyCredential.parseRequestOptionsFromJSON(asked);
      const credential = await navigator.credentials[verb]({ publicKey });
      form.elements.credential.value = JSON.stringify(credential.toJSON());
      form.requestSubmit();
    } catch (error) {
      told.textContent = reason(error);
    }
  });
}

function reason(error) {
  if (typeof PublicKeyCredential === "undefined" || !PublicKeyCredential.parseCreationOptionsFromJSON)
    return "This browser cannot use passkeys here: it is too old, or the page does not come over HTTPS.";
  if (error.name === "NotAllowedError") return "It was cancelled, or took too long. Try again.";
  if (error.name === "InvalidStateError") return "This device holds one of your passkeys already.";
  if (error.name === "SecurityError")
    return "Browsers use passkeys under a name, not under an address of numbers: open this page by its name.";
  return `Your browser says: ${error.message}`;
}
