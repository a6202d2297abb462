// A button on each block of code that copies it.
for (const block of document.querySelectorAll("div:not(.highlight-text) > div.highlight")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  if (navigator.clipboard) block.append(button);  // missing where the page came over plain HTTP
}
